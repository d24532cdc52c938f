"""What differs between two images."""
