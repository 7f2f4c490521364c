-- kinds: apps.kruise.io_ResourceDistribution
-- A namespace that is missing is no fault: it gets its copy when it comes.
local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "waiting for the manager to see the change"}
end
local desired, succeeded = status.desired or 0, status.succeeded or 0
local message = succeeded .. " of " .. desired .. " namespaces have a copy"
for _, condition in ipairs(status.conditions or {}) do
  if condition.status == "True" and condition.type ~= "NamespaceNotExists" then
    return {status = "Degraded", message = message .. "; " .. condition.type .. ": " .. (condition.reason or "")}
  end
end
local missing = 0
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "NamespaceNotExists" and condition.status == "True" then missing = #(condition.failedNamespaces or {}) end
end
if missing < 250 and succeeded + missing < desired then -- a condition names 250 at most
  return {status = "Progressing", message = message}
end
return {status = "Healthy", message = message}
