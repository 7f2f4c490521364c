-- kinds: apps.kruise.io_SidecarSet
local function health(status, message)
  return {status = status, message = message}
end

local function number(value)
  return tonumber(value or 0) or 0
end

local status = obj.status
if status == nil or status.observedGeneration == nil or number(status.observedGeneration) < number(obj.metadata.generation) then
  return health("Progressing", "waiting for the manager to see the latest change")
end
local strategy = obj.spec.updateStrategy or {}
local matched, updated = number(status.matchedPods), number(status.updatedPods)
if strategy.type == "NotUpdate" or strategy.selector ~= nil then
  return health("Healthy", updated .. " of " .. matched .. " pods have the latest sidecars, the others as the strategy says")
end

-- Percentages are tried, because Lua in Argo CD cannot take strings apart.
local kept = number(strategy.partition)
for percent = 0, 100 do
  if strategy.partition == percent .. "%" then
    local exact = matched * percent / 100
    kept = exact - exact % 1
    if kept < exact then kept = kept + 1 end
    if percent < 100 and kept == matched and matched > 1 then kept = matched - 1 end
  end
end
local message = updated .. " of " .. matched .. " pods have the latest sidecars"
if updated < matched - kept then
  if strategy.paused then
    return health("Suspended", "paused: " .. message)
  end
  return health("Progressing", message)
end
return health("Healthy", message)
