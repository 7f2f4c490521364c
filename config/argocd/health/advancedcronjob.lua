-- kinds: apps.kruise.io_AdvancedCronJob
-- A schedule is healthy while it waits for its time: how a run ended is the health of what it created.
local status = obj.status
if status == nil or status.type == nil then
  return {status = "Progressing", message = "waiting for the manager to see the schedule"}
end
local active = #(status.active or {})
local message = active .. (active == 1 and " run is active" or " runs are active")
if status.lastScheduleTime ~= nil then message = message .. ", the last one is that of " .. status.lastScheduleTime end
if obj.spec.paused then
  return {status = "Suspended", message = "it is paused; " .. message}
end
return {status = "Healthy", message = message}
