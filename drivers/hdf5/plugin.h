#ifndef TERRACE_HDF5_PLUGIN_H
#define TERRACE_HDF5_PLUGIN_H

#include "hdf5.h"

/* Where this library lies. */
const char *plugin_path(void);
/* The connector's class: `from` with some calls of ours. */
const H5VL_class_t *connector_class(const H5VL_class_t *from);

#endif
