package sidecarset

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// ConfigMap and key of the annotations that SidecarSets may set (SS-160).
const (
	ConfigMapName = "kruise-configuration"
	WhiteListKey  = "SidecarSet_PatchPodMetadata_WhiteList"
)

// whiteList is the form of that key.
type whiteList struct {
	Rules []struct {
		Selector                  *metav1.LabelSelector `json:"selector,omitempty"`
		AllowedAnnotationKeyExprs []string              `json:"allowedAnnotationKeyExprs"`
	} `json:"rules"`
}

// CheckWhiteList judges the annotations that a SidecarSet sets by the list; found says whether there is one.
// Without a list, or a rule that applies, gate SidecarSetPatchPodMetadataDefaultsAllowed decides (SS-160 to
// SS-162).
func CheckWhiteList(set *appsv1beta1.SidecarSet, text string, found, gate bool) field.ErrorList {
	if len(set.Spec.PatchPodMetadata) == 0 {
		return nil
	}

	path := field.NewPath("spec", "patchPodMetadata")
	if !found {
		if gate {
			return nil
		}
		return field.ErrorList{field.Forbidden(path,
			fmt.Sprintf(
				"SidecarSet patch metadata whitelist not found: an administrator must allow these annotations by key %s of ConfigMap %s in the namespace of the manager",
				WhiteListKey, ConfigMapName))}
	}

	allowed, err := allowedKeys(text, set.Labels)
	if err != nil {
		return field.ErrorList{field.Forbidden(path,
			fmt.Sprintf("key %s of ConfigMap %s: %v", WhiteListKey, ConfigMapName, err))}
	}
	if len(allowed) == 0 {
		if gate {
			return nil
		}
		return field.ErrorList{field.Forbidden(path,
			fmt.Sprintf(
				"sidecarSet patch metadata annotation is not allowed: no rule of key %s of ConfigMap %s applies to the labels of this SidecarSet",
				WhiteListKey, ConfigMapName))}
	}

	var errs field.ErrorList
	for i := range set.Spec.PatchPodMetadata {
		for key := range set.Spec.PatchPodMetadata[i].Annotations {
			if !slices.ContainsFunc(allowed, func(e *regexp.Regexp) bool { return e.MatchString(key) }) {
				errs = append(errs, field.Forbidden(path.Index(i).Child("annotations").Key(key),
					fmt.Sprintf(
						"sidecarSet patch metadata annotation(%s) is not allowed by key %s of ConfigMap %s",
						key, WhiteListKey,
						ConfigMapName)))
			}
		}
	}

	return errs
}

// allowedKeys are the expressions of the rules that apply to a SidecarSet with the labels.
func allowedKeys(text string, of map[string]string) ([]*regexp.Regexp, error) {
	var list whiteList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("reading the whitelist: %w", err)
	}

	var allowed []*regexp.Regexp
	for i, rule := range list.Rules {
		applies := true
		if rule.Selector != nil {
			selector, err := metav1.LabelSelectorAsSelector(rule.Selector)
			if err != nil {
				return nil, fmt.Errorf("rules[%d].selector: %w", i, err)
			}
			applies = selector.Matches(labels.Set(of))
		}
		for _, text := range rule.AllowedAnnotationKeyExprs {
			expression, err := regexp.Compile(text)
			if err != nil {
				return nil, fmt.Errorf("rules[%d].allowedAnnotationKeyExprs: %w", i, err)
			}
			if applies {
				allowed = append(allowed, expression)
			}
		}
	}

	return allowed, nil
}
