"""What else makes the same batches, against framewin; see README.md. No part of the package."""
