"""What goes to CI: which images changed or are not published, as jobs of a CI system."""
