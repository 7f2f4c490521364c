package uniteddeployment

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Merge returns the live child, changed to what the document after says. before is the document that the
// child was made from, or nil if that is no longer known. Fields that are in neither document, such as
// defaults and what others wrote, stay, unless the shape of an object changes: then the API server defaults
// the new object (UD-068, UD-069, UD-071).
func Merge(live, before, after map[string]any) map[string]any {
	merged := runtime.DeepCopyJSON(live)
	metadata, _ := merged["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		merged["metadata"] = metadata
	}

	for _, field := range []string{"labels", "annotations"} {
		texts := member(metadata, field)
		for key, value := range member(member(before, "metadata"), field) {
			if texts[key] == value { // nobody has changed it
				delete(texts, key)
			}
		}
		for key, value := range member(member(after, "metadata"), field) {
			texts[key] = value
		}
		metadata[field] = texts
	}

	spec, old := member(merged, "spec"), member(before, "spec")
	known := before != nil
	pod, oldPod, newPod := member(spec, "template"), member(old, "template"),
		member(member(after, "spec"), "template")

	// The fields of these objects are independent of each other, so all fields that others wrote stay.
	result := fields(spec, old, member(after, "spec"), known)
	template := fields(pod, oldPod, newPod, known)
	template["metadata"] = fields(member(pod, "metadata"), member(oldPod, "metadata"),
		member(newPod, "metadata"), known)

	if selector, ok := spec["selector"]; ok { // it is immutable
		result["selector"] = selector
	}
	template["spec"] = fields(member(pod, "spec"), member(oldPod, "spec"), member(newPod, "spec"), known)
	result["template"] = template
	merged["spec"] = result
	return merged
}

// member returns an object inside another one, or an empty object if there is none.
func member(object map[string]any, key string) map[string]any {
	if inner, ok := object[key].(map[string]any); ok {
		return inner
	}
	return map[string]any{}
}

// fields merges the fields of an object one by one. If known is false, it is not known what the object was
// made from, and only fields of after are kept.
func fields(live, before, after map[string]any, known bool) map[string]any {
	merged := make(map[string]any, len(live))
	for key, value := range live {
		_, wanted := after[key]
		if _, was := before[key]; wanted || known && !was {
			merged[key] = value
		}
	}
	for key, value := range after {
		place(merged, key, before, value)
	}
	return merged
}

// place sets a field of an object, merging it with the present value if there is one.
func place(merged map[string]any, key string, before map[string]any, value any) {
	present, there := merged[key]
	old, was := before[key]
	switch {
	case value == nil:
		delete(merged, key)
	case key == "nodeSelectorTerms": // it has no defaults, and a merge of two of them makes no sense
		merged[key] = value
	case !there && was && empty(value) && equal(key, old, value): // the API server omitted it
	case !there:
		merged[key] = value
	default:
		merged[key] = merge(key, present, old, value)
	}
}

// merge merges one value into the live one.
func merge(key string, live, before, after any) any {
	switch after := after.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return after
		}
		old, _ := before.(map[string]any)
		merged := make(map[string]any, len(live))
		if sameShape(old, after) { // so the live object's other fields are defaults
			for key, value := range live {
				merged[key] = value
			}
		} else {
			for key := range after {
				if value, ok := live[key]; ok {
					merged[key] = value
				}
			}
		}
		for key, value := range after {
			place(merged, key, old, value)
		}
		return merged
	case []any:
		live, ok := live.([]any)
		if !ok {
			return after
		}
		old, _ := before.([]any)
		merged := make([]any, len(after))
		liveNamed, oldNamed := byName(live), byName(old)
		for i := range after {
			merged[i] = after[i]
			present, was := counterpart(live, liveNamed, i, after), counterpart(old, oldNamed, i, after)
			if present != nil {
				merged[i] = merge(key, present, was, after[i])
			}
		}
		return merged
	}
	if equal(key, live, after) {
		return live
	}

	return after
}

// sameShape reports whether an object has the same fields as before, with equal values in those that are
// neither objects nor lists.
func sameShape(before, after map[string]any) bool {
	if len(before) != len(after) {
		return false
	}

	for key, value := range after {
		old, ok := before[key]
		if !ok {
			return false
		}
		switch value.(type) {
		case map[string]any, []any:
		default:
			if !equal(key, old, value) {
				return false
			}
		}
	}

	return true
}

// byName returns the objects of a list by name; those of a name that occurs several times are nil.
func byName(list []any) map[string]map[string]any {
	named := make(map[string]map[string]any, len(list))
	for _, item := range list {
		object, _ := item.(map[string]any)
		name, ok := object["name"].(string)
		if _, again := named[name]; again {
			object = nil
		}
		if ok {
			named[name] = object
		}
	}
	return named
}

// counterpart returns the object in list that corresponds to others[i]: the only one of the same name, or the
// one at the same index if objects have no names and the lists are equally long. inList are those of list by
// name.
func counterpart(list []any, inList map[string]map[string]any, i int, others []any) any {
	other, ok := others[i].(map[string]any)
	if !ok {
		return nil
	}

	name, named := other["name"].(string)
	if named && inList[name] != nil {
		return inList[name]
	}
	if len(list) != len(others) {
		return nil
	}

	object, ok := list[i].(map[string]any)
	if !ok || named && object["name"] != name {
		return nil
	}

	return object
}

// empty reports whether the API server may omit a value.
func empty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil || reflect.ValueOf(value).IsZero()
}

// quantities are the fields with quantities, which the API server normalizes.
var quantities = map[string]bool{"cpu": true, "memory": true, "storage": true, "ephemeral-storage": true,
	"sizeLimit": true, "divisor": true}

// equal reports whether two values mean the same.
func equal(key string, a, b any) bool {
	if reflect.DeepEqual(a, b) || empty(a) && empty(b) {
		return true
	}

	x, number := amount(a)
	y, other := amount(b)
	if number && other {
		return x == y
	}

	first, errA := resource.ParseQuantity(text(a))
	second, errB := resource.ParseQuantity(text(b))
	_, scalarA := a.(string)
	_, scalarB := b.(string)
	return (quantities[key] || strings.Contains(key, "/") || strings.HasPrefix(key, "hugepages-") ||
		scalarA != scalarB && key != "value" && key != "maxUnavailable") && errA == nil && errB == nil &&
		first.Cmp(second) == 0
}

func amount(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	}
	return 0, false
}

func text(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case int64:
		return resource.NewQuantity(value, resource.DecimalSI).String()
	}
	return ""
}
