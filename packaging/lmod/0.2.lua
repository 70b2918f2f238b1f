-- Lmod's module: in MODULEPATH/tensorutils, with where PREFIX was.
help([[Small Unix tools for the tensors around language and vision models.
man tensorutils begins; each tool has --help.]])
whatis("Name: tensorutils")
whatis("Version: 0.2")
whatis("Description: safetensors, activations, sparse autoencoders, tables, LoRA")
local prefix = "/path/to/PREFIX"
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
prepend_path("PYTHONPATH", pathJoin(prefix, "share/tensorutils/python"))
