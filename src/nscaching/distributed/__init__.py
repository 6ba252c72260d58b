"""The same step over tables that are cut into strata, which one or several processes own."""
