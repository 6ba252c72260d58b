"""Results to look at: pages of HTML, and the picture of a comparison (extra ``plot``)."""
