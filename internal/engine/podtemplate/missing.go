package podtemplate

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-openapi/jsonpointer"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/internal/engine/imageref"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
)

// missingValue is a value that a pod template lacks, with its position.
type missingValue struct {
	pointer string
	value   any
}

// missingValues returns what complete adds to given, except what the stored template lacks, too: that would
// make a difference between revisions although the user changed nothing, and recreate pods that could be
// updated in place. Lists are completed item by item; the API server keeps their order.
func missingValues(given, complete, stored any, pointer string) []missingValue {
	var found []missingValue
	switch complete := complete.(type) {
	case Document:
		given, ok := given.(Document)
		if !ok {
			return nil
		}
		before, exists := stored.(Document)
		for _, key := range slices.Sorted(maps.Keys(complete)) {
			at, value, present := pointer+"/"+jsonpointer.Escape(key), complete[key], given[key]
			switch {
			case value == nil:
			case present != nil && (present != "" || value == ""):
				found = append(found, missingValues(present, value, before[key], at)...)
			case !exists || before[key] != nil:
				found = append(found, missingValue{at, withoutNulls(value)})
			}
		}
	case []any:
		given, ok := given.([]any)
		if !ok || len(given) != len(complete) {
			return nil
		}
		before := counterparts(given, stored, pointer)
		for i := range complete {
			found = append(found, missingValues(given[i], complete[i], before[i],
				fmt.Sprintf("%s/%d", pointer, i))...)
		}
	}

	return found
}

// keptValues returns what the stored template has and the given one leaves out, as far as the API server
// would set it again. Whoever applies a manifest leaves out all defaults in lists, because lists are replaced
// as a whole. A value that a user removed stays removed if it is no default, or differs from the default.
func keptValues(given, stored any) []missingValue {
	return kept(given, stored, reflect.TypeFor[corev1.PodTemplateSpec](), "")
}

// kept is keptValues for a value of type t. It is nil for a type that our libraries do not know, in which
// every field may be a default.
func kept(given, stored any, t reflect.Type, pointer string) []missingValue {
	if t != nil {
		t = jsonfields.Elem(t)
	}

	var found []missingValue
	switch stored := stored.(type) {
	case Document:
		given, ok := given.(Document)
		if !ok || t != nil && t.Kind() == reflect.Map {
			return nil // labels and similar maps belong to the user
		}
		for _, key := range slices.Sorted(maps.Keys(stored)) {
			var field reflect.Type
			if t != nil && t.Kind() == reflect.Struct {
				field = jsonfields.Of(t)[key]
			}
			at, value, present := pointer+"/"+jsonpointer.Escape(key), stored[key], given[key]
			switch {
			case value == nil:
			case present != nil && (present != "" || value == ""):
				found = append(found, kept(present, value, field, at)...)
			case field == nil || isDefault(t, key, given, stored):
				found = append(found, missingValue{at, withoutNulls(value)})
			}
		}
	case []any:
		given, ok := given.([]any)
		if !ok {
			return nil
		}
		var item reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			item = t.Elem()
		}
		for i, before := range counterparts(given, stored, pointer) {
			found = append(found, kept(given[i], before, item, fmt.Sprintf("%s/%d", pointer, i))...)
		}
	}

	return found
}

// serverDefaults are the values that API servers set in fields of pod templates, and the empty objects that
// they write, as JSON. Kubernetes adds no defaults to existing fields, because every template would get
// another hash. New defaults are those of fields that our libraries do not know.
var serverDefaults = map[reflect.Type]map[string][]string{
	reflect.TypeFor[corev1.PodTemplateSpec](): {"metadata": {`{}`}},
	reflect.TypeFor[corev1.PodSpec](): {
		"dnsPolicy": {`"ClusterFirst"`}, "restartPolicy": {`"Always"`},
		"schedulerName":   {`"default-scheduler"`},
		"securityContext": {`{}`}, "terminationGracePeriodSeconds": {`30`},
	},
	reflect.TypeFor[corev1.Container](): {
		"imagePullPolicy": {`"Always"`, `"IfNotPresent"`}, "resources": {`{}`},
		"terminationMessagePath": {`"/dev/termination-log"`}, "terminationMessagePolicy": {`"File"`},
	},
	reflect.TypeFor[corev1.ContainerPort](): {"protocol": {`"TCP"`}},
	reflect.TypeFor[corev1.Probe](): {
		"failureThreshold": {`3`}, "periodSeconds": {`10`}, "successThreshold": {`1`},
		"timeoutSeconds": {`1`},
	},
	reflect.TypeFor[corev1.HTTPGetAction]():                 {"path": {`"/"`}, "scheme": {`"HTTP"`}},
	reflect.TypeFor[corev1.GRPCAction]():                    {"service": {`""`}},
	reflect.TypeFor[corev1.ObjectFieldSelector]():           {"apiVersion": {`"v1"`}},
	reflect.TypeFor[corev1.ResourceFieldSelector]():         {"divisor": {`"0"`}},
	reflect.TypeFor[corev1.FileKeySelector]():               {"optional": {`false`}},
	reflect.TypeFor[corev1.Volume]():                        {"emptyDir": {`{}`}},
	reflect.TypeFor[corev1.ImageVolumeSource]():             {"pullPolicy": {`"Always"`, `"IfNotPresent"`}},
	reflect.TypeFor[corev1.SecretVolumeSource]():            {"defaultMode": {`420`}},
	reflect.TypeFor[corev1.ConfigMapVolumeSource]():         {"defaultMode": {`420`}},
	reflect.TypeFor[corev1.DownwardAPIVolumeSource]():       {"defaultMode": {`420`}},
	reflect.TypeFor[corev1.ProjectedVolumeSource]():         {"defaultMode": {`420`}},
	reflect.TypeFor[corev1.ServiceAccountTokenProjection](): {"expirationSeconds": {`3600`}},
	reflect.TypeFor[corev1.HostPathVolumeSource]():          {"type": {`""`}},
	reflect.TypeFor[corev1.PersistentVolumeClaimTemplate](): {"metadata": {`{}`}},
	reflect.TypeFor[corev1.PersistentVolumeClaimSpec](): {
		"resources": {`{}`}, "volumeMode": {`"Filesystem"`},
	},
	reflect.TypeFor[corev1.ISCSIVolumeSource](): {"iscsiInterface": {`"default"`}},
	reflect.TypeFor[corev1.RBDVolumeSource](): {
		"keyring": {`"/etc/ceph/keyring"`}, "pool": {`"rbd"`}, "user": {`"admin"`},
	},
	reflect.TypeFor[corev1.AzureDiskVolumeSource](): {
		"cachingMode": {`"ReadWrite"`}, "fsType": {`"ext4"`}, "kind": {`"Shared"`}, "readOnly": {`false`},
	},
	reflect.TypeFor[corev1.ScaleIOVolumeSource](): {
		"fsType": {`"xfs"`}, "storageMode": {`"ThinProvisioned"`},
	},
}

// isDefault reports whether the API server would set the stored value in a field of type t that is left out.
func isDefault(t reflect.Type, key string, given, stored Document) bool {
	text, err := json.Marshal(withoutNulls(stored[key]))
	if err != nil || !slices.Contains(serverDefaults[t][key], string(text)) {
		return false
	}

	switch key {
	case "emptyDir":
		return len(given) == 1 // a volume that has only a name
	case "imagePullPolicy":
		return stored[key] == pullPolicy(given["image"])
	case "pullPolicy":
		return stored[key] == pullPolicy(given["reference"])
	}
	return true
}

// pullPolicy returns the policy that API servers set for an image.
func pullPolicy(image any) string {
	text, _ := image.(string)
	if _, tag, err := imageref.Parse(text); err == nil && tag == "latest" {
		return string(corev1.PullAlways)
	}
	return string(corev1.PullIfNotPresent)
}

// itemKeys are the fields by which Kubernetes identifies the items of a list if that is not the name. Other
// items are identified by their position only.
var itemKeys = map[string][]string{
	"ports": {"containerPort", "protocol"}, "volumeMounts": {"mountPath"},
	"volumeDevices": {"devicePath"}, "items": {"path"},
}

// counterparts returns for each item of a list its counterpart in the stored list, nil if it is new. Several
// items with the same identity, such as a variable that is named twice, are matched in their order.
func counterparts(given []any, stored any, pointer string) []any {
	found, items := make([]any, len(given)), map[string]any{}
	if list, ok := stored.([]any); ok {
		for i, id := range identities(list, pointer) {
			items[id] = list[i]
		}
	}
	for i, id := range identities(given, pointer) {
		found[i] = items[id]
	}
	return found
}

func identities(items []any, pointer string) []string {
	list := pointer[strings.LastIndex(pointer, "/")+1:]
	ids, times := make([]string, len(items)), map[string]int{}
	for i, item := range items {
		object, _ := item.(Document)
		id := fmt.Sprintf("%d", i)
		for _, keys := range [][]string{{"name"}, itemKeys[list]} {
			if len(keys) > 0 && object[keys[0]] != nil {
				id = ""
				for _, key := range keys {
					value := object[key]
					if value == nil && key == "protocol" {
						value = corev1.ProtocolTCP
					}
					id += fmt.Sprintf("/%s=%v", key, value)
				}
			}
		}
		times[id]++
		ids[i] = fmt.Sprintf("%s#%d", id, times[id])
	}

	return ids
}

// withoutNulls removes the fields without a value, such as the creation time of a template, from a value that
// was just decoded.
func withoutNulls(value any) any {
	if object, ok := value.(Document); ok {
		for key, member := range object {
			if member == nil {
				delete(object, key)
			} else {
				withoutNulls(member)
			}
		}
	}
	return value
}
