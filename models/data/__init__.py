"""Data sets: readers, preparation, the catalogue of known names and the embedded sample of covtype.

Importing this package loads nothing heavy; `hetsgd.models.data.names` lists the known data sets without
numpy, `hetsgd.models.data.catalogue.load` reads them.
"""
