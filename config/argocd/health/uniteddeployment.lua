-- kinds: apps.kruise.io_UnitedDeployment
local function health(status, message)
  return {status = status, message = message}
end

local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration < (obj.metadata.generation or 0) then
  return health("Progressing", "waiting for the manager to see the latest change")
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.status == "False" and (condition.type == "SubsetProvisioned" or condition.type == "SubsetUpdated")
      or condition.status == "True" and condition.type == "SubsetFailure" then
    return health("Degraded", condition.type .. ": " .. (condition.message or condition.reason or ""))
  end
end
local subsets = status.subsetStatuses or {}
if #subsets == 0 then
  return health("Healthy", "there are no subsets")
end
-- kept is how many pods partitions leave at the old revision.
local wanted, kept = obj.spec.replicas or 1, 0
for _, subset in ipairs(subsets) do
  local partition = subset.partition or 0
  if partition > (subset.replicas or 0) then partition = subset.replicas or 0 end
  kept = kept + partition
end
local suffix = ""
if (status.reservedPods or 0) > 0 then suffix = "; " .. status.reservedPods .. " pods that cannot be scheduled have substitutes" end
local replicas, updated, ready = status.replicas or 0, status.updatedReplicas or 0, status.readyReplicas or 0
if updated < wanted - kept then
  return health("Progressing", updated .. " of " .. (wanted - kept) .. " pods are updated" .. suffix)
end
if replicas > wanted then
  return health("Progressing", replicas .. " pods, of which " .. wanted .. " are to stay" .. suffix)
end
if ready < wanted then
  return health("Progressing", ready .. " of " .. wanted .. " pods are ready" .. suffix)
end
if kept > 0 and updated < wanted then
  return health("Healthy", "rolled out as far as the partitions allow: " .. updated .. " of " .. wanted .. " pods are updated" .. suffix)
end
return health("Healthy", "all " .. wanted .. " pods are updated and ready" .. suffix)
