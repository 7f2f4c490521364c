-- kinds: apps.kruise.io_NodeImage
local status = obj.status or {}
local wanted = 0
for _, image in pairs(obj.spec.images or {}) do
  wanted = wanted + #(image.tags or {})
end
local failed = status.failed or 0
local message = (status.succeeded or 0) .. " of " .. wanted .. " images are on the node"
if (status.desired or 0) ~= wanted or (status.pulling or 0) + (status.waiting or 0) > 0 then
  return {status = "Progressing", message = message .. ", " .. (status.pulling or 0) .. " are being pulled"}
end
if failed > 0 then
  local names = {}
  for name, image in pairs(status.imageStatuses or {}) do
    for _, tag in ipairs(image.tags or {}) do
      if tag.phase == "Failed" then names[#names + 1] = name .. ":" .. tag.tag .. " (" .. (tag.message or "no reason is given") .. ")" end
    end
  end
  table.sort(names)
  return {status = "Degraded", message = message .. "; failed: " .. table.concat(names, ", ")}
end
return {status = "Healthy", message = message}
