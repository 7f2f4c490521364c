-- kinds: apps.kruise.io_NodePodProbe
local probes, results = 0, 0
for _, pod in ipairs((obj.spec or {}).podProbes or {}) do probes = probes + #(pod.probes or {}) end
for _, pod in ipairs((obj.status or {}).podProbeStatuses or {}) do results = results + #(pod.probeStates or {}) end
local message = results .. " of " .. probes .. " probes have a result"
if results < probes then return {status = "Progressing", message = message} end
return {status = "Healthy", message = message}
