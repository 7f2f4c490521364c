-- kinds: apps.kruise.io_ContainerRecreateRequest
local status = obj.status or {}
local done, failed = 0, {}
for _, state in ipairs(status.containerRecreateStates or {}) do
  if state.phase == "Succeeded" then done = done + 1 end
  if state.phase == "Failed" then failed[#failed + 1] = state.name .. " (" .. (state.message or "no reason is given") .. ")" end
end
local message = done .. " of " .. #(obj.spec.containers or {}) .. " containers are restarted"
if #failed > 0 then message = message .. "; failed: " .. table.concat(failed, ", ") end
if status.phase ~= "Completed" then
  return {status = "Progressing", message = message}
end
if #failed > 0 or done < #(obj.spec.containers or {}) then
  if status.message ~= nil and status.message ~= "" then message = message .. "; " .. status.message end
  return {status = "Degraded", message = message}
end
return {status = "Healthy", message = message}
