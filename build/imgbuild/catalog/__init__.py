"""Help to choose an image: write the catalog page, compare images, and pick fitting ones."""
