local os = require("os")
local metadata = obj.spec.template.metadata
if metadata == nil then
  metadata = {}
  obj.spec.template.metadata = metadata
end
metadata.annotations = metadata.annotations or {}
metadata.annotations["apps.kruise.io/restarted-at"] = os.date("!%Y-%m-%dT%XZ")
return obj
