"""Results to look at: pages of HTML and SVG pictures, one stack for both."""
