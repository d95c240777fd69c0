"""Windows as pure arithmetic: integers in, integers out, nothing opened."""
