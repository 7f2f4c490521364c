-- kinds: apps.kruise.io_NodePodProbe
return {status = "Healthy", message = #((obj.spec or {}).podProbes or {}) .. " pods of the node are probed"}
