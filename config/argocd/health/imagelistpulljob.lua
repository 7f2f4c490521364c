-- kinds: apps.kruise.io_ImageListPullJob
local status = obj.status
if status == nil or status.startTime == nil then
  return {status = "Progressing", message = "waiting for the manager to see the job"}
end
local desired, succeeded = status.desired or 0, status.succeeded or 0
local message = succeeded .. " of " .. desired .. " images are on all nodes"
local failed = {}
for _, image in ipairs(status.failedImageStatuses or {}) do
  failed[#failed + 1] = image.name or image.imagePullJob
end
if #failed > 0 then message = message .. "; failed: " .. table.concat(failed, ", ") end
-- Jobs of type Never do not end; the list is done when every node has a result for each of them.
local never = (obj.spec.completionPolicy or {}).type == "Never" and (status.completed or 0) >= desired
if status.completionTime == nil and not never then
  return {status = "Progressing", message = message}
end
if #failed > 0 or succeeded < desired then
  return {status = "Degraded", message = message}
end
return {status = "Healthy", message = message}
