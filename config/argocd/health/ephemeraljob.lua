-- kinds: apps.kruise.io_EphemeralJob
local status, spec = obj.status or {}, obj.spec or {}
if status.startTime == nil then
  return {status = "Progressing", message = "waiting for the manager to see the job"}
end
local message = (status.succeeded or 0) .. " of " .. (status.match or 0) .. " pods succeeded"
if (status.failed or 0) > 0 then message = message .. ", " .. status.failed .. " failed" end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "JobError" or condition.type == "JobFailed" or condition.type == "MatchedEmpty" then
    message = message .. "; " .. (condition.message or "no reason is given")
  end
end
if status.phase == "Succeeded" then return {status = "Healthy", message = message} end
if status.phase == "Failed" or status.phase == "Error" then return {status = "Degraded", message = message} end
if spec.paused then return {status = "Suspended", message = "paused: " .. message} end
return {status = "Progressing", message = message}
