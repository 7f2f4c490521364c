-- kinds: apps.kruise.io_PersistentPodState
local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "waiting for the manager to see the latest change"}
end
local places = 0
for _ in pairs(status.podStates or {}) do places = places + 1 end
return {status = "Healthy", message = "pods whose places are known: " .. places}
