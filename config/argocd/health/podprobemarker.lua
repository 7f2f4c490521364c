-- kinds: apps.kruise.io_PodProbeMarker
local status = obj.status or {}
local message = (status.matchedPods or 0) .. " pods are probed"
if status.observedGeneration == nil or status.observedGeneration < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "waiting for the manager to see the change; " .. message}
end
return {status = "Healthy", message = message}
