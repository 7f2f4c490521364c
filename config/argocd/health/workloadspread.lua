-- kinds: apps.kruise.io_WorkloadSpread
local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration < (obj.metadata.generation or 0) then
  return {status = "Progressing", message = "waiting for the manager to see the latest change"}
end
local passed, counts = {}, {}
for _, subset in ipairs(status.subsetStatuses or {}) do
  counts[#counts + 1] = subset.name .. " " .. (subset.replicas or 0)
  for _, condition in ipairs(subset.conditions or {}) do
    if condition.type == "Schedulable" and condition.status == "False" then passed[#passed + 1] = subset.name end
  end
end
local message = "pods: " .. table.concat(counts, ", ")
if #passed > 0 then
  -- That is what subsets are for: pods go to the next one.
  message = message .. "; passed over, since pods could not be scheduled there: " .. table.concat(passed, ", ")
end
return {status = "Healthy", message = message}
