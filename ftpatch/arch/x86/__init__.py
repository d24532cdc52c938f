"""What x86_64 and i386 have in common; no architecture of its own."""
