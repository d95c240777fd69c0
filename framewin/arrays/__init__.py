"""Arrays that others wrote, as frames: HDF5, netCDF4, Zarr 2 and 3, .npy."""
