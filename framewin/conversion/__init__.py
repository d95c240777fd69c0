"""From frame folders to a store."""
