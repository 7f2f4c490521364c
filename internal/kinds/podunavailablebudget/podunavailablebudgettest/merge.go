package podunavailablebudgettest

import (
	"encoding/json"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// Merged is a status after a JSON merge patch, as the API server stores it.
func Merged(
	status *policyv1beta1.PodUnavailableBudgetStatus, changes map[string]any,
) (after policyv1beta1.PodUnavailableBudgetStatus, err error) {
	var stored, patch map[string]any
	if err = reread(status, &stored); err == nil {
		err = reread(changes, &patch)
	}
	if err != nil {
		return after, err
	}
	merge(stored, patch)
	return after, reread(stored, &after)
}

func reread(from, into any) error {
	document, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(document, into)
}

func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap:
			below, found := into[key].(map[string]any)
			if !found {
				below = map[string]any{}
			}
			merge(below, inner)
			into[key] = below
		default:
			into[key] = value
		}
	}
}
