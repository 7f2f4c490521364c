package uniteddeployment

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Merge returns a live child as a new document says, which was made from another one before; that is nil if
// it is not known any more. What is in neither, such as defaults and what others wrote, stays, but where the
// shape of an object changes: there the API server fills in anew what belongs to the new one (UD-068, UD-069,
// UD-071).
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
	// Fields of these are independent of each other, so that all others of them stay.
	result := fields(spec, old, member(after, "spec"), known)
	template := fields(pod, oldPod, newPod, known)
	template["metadata"] = fields(member(pod, "metadata"), member(oldPod, "metadata"),
		member(newPod, "metadata"), known)
	if selector, ok := spec["selector"]; ok { // it cannot be changed
		result["selector"] = selector
	}
	template["spec"] = fields(member(pod, "spec"), member(oldPod, "spec"), member(newPod, "spec"), known)
	result["template"] = template
	merged["spec"] = result
	return merged
}

// member is an object in another, empty if there is none.
func member(object map[string]any, key string) map[string]any {
	if inner, ok := object[key].(map[string]any); ok {
		return inner
	}
	return map[string]any{}
}

// fields merges the fields of an object one by one. If it is not known what it was made from, only that of
// the new one is left of each that this has.
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

// place puts a value where an object has one of it now.
func place(merged map[string]any, key string, before map[string]any, value any) {
	present, there := merged[key]
	old, was := before[key]
	switch {
	case value == nil:
		delete(merged, key)
	case key == "nodeSelectorTerms": // into which nothing is filled; half of another one is none
		merged[key] = value
	case !there && was && empty(value) && equal(key, old, value): // the API server has left it out
	case !there:
		merged[key] = value
	default:
		merged[key] = merge(key, present, old, value)
	}
}

// merge merges one value.
func merge(key string, live, before, after any) any {
	switch after := after.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return after
		}
		old, _ := before.(map[string]any)
		merged := make(map[string]any, len(live))
		if sameShape(old, after) { // so what it has besides was filled in
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
		for i := range after {
			merged[i] = after[i]
			present, was := counterpart(live, i, after), counterpart(old, i, after)
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

// sameShape tells whether an object has the same fields as before, and the same values in those that are
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

// counterpart is the object in a list that stands for the i-th of another: the only one of its name, or where
// objects have no name the one at the same place of a list as long.
func counterpart(list []any, i int, others []any) any {
	other, ok := others[i].(map[string]any)
	if !ok {
		return nil
	}

	name, named := other["name"].(string)
	has := func(item any) bool {
		object, _ := item.(map[string]any)
		return object["name"] == name
	}
	if named {
		if first := slices.IndexFunc(list, has); first >= 0 && !slices.ContainsFunc(list[first+1:], has) {
			return list[first]
		}
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

// empty tells whether the API server may leave a value out.
func empty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return value == nil || reflect.ValueOf(value).IsZero()
}

// quantities are the fields with amounts, which the API server writes in its own way.
var quantities = map[string]bool{"cpu": true, "memory": true, "storage": true, "ephemeral-storage": true,
	"sizeLimit": true, "divisor": true}

// equal tells whether two values mean the same.
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
