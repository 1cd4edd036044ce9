"""Read streams as rows. Spark calls the classes in `readers`."""
