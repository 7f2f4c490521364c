-- kinds: apps.kruise.io_BroadcastJob
local status = obj.status
if status == nil or status.startTime == nil then
  return {status = "Progressing", message = "waiting for the manager to see the job"}
end
local desired, succeeded, failed = status.desired or 0, status.succeeded or 0, status.failed or 0
local message = succeeded .. " of " .. desired .. " nodes are done"
if failed > 0 then
  message = message .. ", " .. failed .. " failed"
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.status == "True" and condition.type == "Failed" then
    return {status = "Degraded", message = (condition.message or "the job failed") .. ": " .. message}
  end
  if condition.status == "True" and condition.type == "Complete" then
    return {status = failed > 0 and "Degraded" or "Healthy", message = message}
  end
end
if status.phase == "paused" then
  return {status = "Suspended", message = "paused: " .. message}
end
-- A job of type Never does not end; it is done when every node has a result.
if (obj.spec.completionPolicy or {}).type == "Never" and succeeded + failed >= desired then
  return {status = failed > 0 and "Degraded" or "Healthy", message = message}
end
return {status = "Progressing", message = message}
