-- kinds: apps.kruise.io_CloneSet apps.kruise.io_DaemonSet apps.kruise.io_StatefulSet
local function health(status, message)
  return {status = status, message = message}
end

-- number reads a field that may be absent.
local function number(value, default)
  if value == nil then return default or 0 end
  return tonumber(value) or 0
end

local status = obj.status
if status == nil or status.observedGeneration == nil or number(status.observedGeneration) < number(obj.metadata.generation) then
  return health("Progressing", "waiting for the manager to see the latest change")
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Progressing" and condition.status == "False" and condition.reason == "ProgressDeadlineExceeded" then
    return health("Degraded", "the rollout exceeded its progress deadline: " .. (condition.message or ""))
  end
  if condition.status == "True" and (condition.type == "FailedScale" or condition.type == "FailedUpdate"
      or condition.type == "FailedCreatePod" or condition.type == "FailedUpdatePod") then
    return health("Degraded", condition.type .. ": " .. (condition.message or condition.reason or ""))
  end
end

local strategy = obj.spec.updateStrategy or {}
local rolling = strategy.rollingUpdate or {}
local daemons = obj.kind == "DaemonSet"
local wanted = daemons and number(status.desiredNumberScheduled) or number(obj.spec.replicas, 1)
local updated = daemons and number(status.updatedNumberScheduled) or number(status.updatedReplicas)
local available = daemons and number(status.numberAvailable) or number(status.availableReplicas)

-- kept is how many pods the partition leaves at the old revision. Lua in Argo CD cannot take strings apart, so percentages are tried.
local partition = rolling.partition
if partition == nil then partition = strategy.partition end -- CloneSets in v1alpha1
local kept = number(partition)
if partition ~= nil and tonumber(partition) == nil then
  for percent = 0, 100 do
    if partition == percent .. "%" then
      local exact = wanted * percent / 100
      kept = exact - exact % 1
      if not daemons and kept < exact then kept = kept + 1 end
      if not daemons and percent < 100 and kept == wanted and wanted > 1 then kept = wanted - 1 end
    end
  end
end
local target = wanted - kept
if target < 0 then target = 0 end

local left = strategy.type == "OnDelete" or rolling.selector ~= nil
if not left and updated < target then
  local message = updated .. " of " .. target .. " pods are updated"
  if rolling.paused or strategy.paused then
    return health("Suspended", "paused: " .. message)
  end
  return health("Progressing", message)
end
if not daemons and number(status.replicas) > wanted then
  return health("Progressing", number(status.replicas) .. " pods, of which " .. wanted .. " are to stay")
end
if available < wanted then
  return health("Progressing", available .. " of " .. wanted .. " pods are available")
end
if left and updated < wanted then
  return health("Healthy", "all " .. wanted .. " pods are available; " .. updated .. " are updated, the others as the strategy says")
end
if kept > 0 and updated < wanted then
  return health("Healthy", "rolled out as far as the partition allows: " .. updated .. " of " .. wanted .. " pods are updated")
end
return health("Healthy", "all " .. wanted .. " pods are updated and available")
