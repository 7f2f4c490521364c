-- kinds: apps.kruise.io_ImagePullJob
local status = obj.status
if status == nil or status.startTime == nil then
  return {status = "Progressing", message = "waiting for the manager to see the job"}
end
local desired, succeeded, failed = status.desired or 0, status.succeeded or 0, status.failed or 0
local message = succeeded .. " of " .. desired .. " nodes have the image"
if failed > 0 then
  message = message .. ", " .. failed .. " failed"
  if status.failedNodes ~= nil then message = message .. ": " .. table.concat(status.failedNodes, ", ") end
end
-- A job of type Never does not end; it is done when every node has a result.
local never = (obj.spec.completionPolicy or {}).type == "Never" and succeeded + failed >= desired
if status.completionTime == nil and not never then
  return {status = "Progressing", message = message}
end
if failed > 0 or succeeded < desired then
  return {status = "Degraded", message = message}
end
return {status = "Healthy", message = message}
