-- kinds: policy.kruise.io_PodUnavailableBudget
local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "not counted yet: until then nothing is allowed"}
end
local current, desired = status.currentAvailable or 0, status.desiredAvailable or 0
if current < desired then
  return {status = "Progressing", message = "only " .. current .. " of the " .. desired .. " pods that must be in service are"}
end
return {status = "Healthy", message = (status.unavailableAllowed or 0) .. " more pods may leave service"}
