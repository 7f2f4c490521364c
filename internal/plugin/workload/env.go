package workload

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// SetEnv sets and removes environment variables of a container. Without overwrite, it returns an error if a
// variable has another value.
func (c Container) SetEnv(set []corev1.EnvVar, remove []string, overwrite bool) error {
	wanted := map[string]map[string]any{}
	for _, variable := range set {
		fields, err := Encode(&variable)
		if err != nil {
			return err
		}
		wanted[variable.Name] = fields
	}

	list, _ := c.Fields["env"].([]any)
	after, done := []any{}, map[string]bool{}
	for _, one := range list {
		fields, _ := one.(map[string]any)
		name, _ := fields["name"].(string)
		other, ok := wanted[name]
		switch {
		case slices.Contains(remove, name), done[name]:
		case !ok:
			after = append(after, one)
		case same(fields, other):
			after, done[name] = append(after, one), true
		case !overwrite:
			return fmt.Errorf("'%s' already has a value (%v), and --overwrite is false", name,
				fields["value"])
		default:
			after, done[name] = append(after, other), true
		}
	}

	for _, variable := range set {
		if !done[variable.Name] && !slices.Contains(remove, variable.Name) {
			after, done[variable.Name] = append(after, wanted[variable.Name]), true
		}
	}

	if len(after) == 0 {
		delete(c.Fields, "env")
		return nil
	}

	c.Fields["env"] = after
	return nil
}

// same reports whether two variables of a document are semantically equal.
func same(fields, other map[string]any) bool {
	a, b := corev1.EnvVar{}, corev1.EnvVar{}
	return Decode(fields, &a) == nil && Decode(other, &b) == nil && equality.Semantic.DeepEqual(a, b)
}
