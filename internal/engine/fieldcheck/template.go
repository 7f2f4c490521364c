// Package fieldcheck contains the validation rules that all workloads with a pod template share. Each error
// names the field and says what to do.
package fieldcheck

import (
	"fmt"
	"regexp"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/inplace"
)

var indexes = regexp.MustCompile(`\[\d+\]`)

// Fresh returns the errors that did not exist before. The position of an item in a list does not matter,
// because others may have been inserted before it; the number of equal errors does.
func Fresh(errs, before field.ErrorList) field.ErrorList {
	likeness := func(err *field.Error) string {
		return indexes.ReplaceAllString(err.Field, "[]") + ": " + err.ErrorBody()
	}

	known, most := map[string]int{}, map[string]int{}
	for _, err := range before {
		known[likeness(err)]++
		if n, ok := err.BadValue.(int); ok && err.Type == field.ErrorTypeTooMany {
			most[err.Field] = n
		}
	}

	var fresh field.ErrorList
	for _, err := range errs {
		if n, ok := err.BadValue.(int); ok && err.Type == field.ErrorTypeTooMany && n <= most[err.Field] {
			continue // there are fewer than before
		}
		if known[likeness(err)]--; known[likeness(err)] < 0 {
			fresh = append(fresh, err)
		}
	}

	return fresh
}

// Template validates the selector of a workload of the kind, and what the workload requires of its template
// beyond a valid pod template (CS-021, CS-023). path is that of the spec.
func Template(
	kind string, template *template.PodTemplate, selector *metav1.LabelSelector, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("template")
	decodeErr := template.DecodeError()
	switch {
	case decodeErr != nil:
		errs = append(errs, field.Invalid(at, "(not shown)", decodeErr.Error()))
	case template.IsZero():
		errs = append(errs, field.Required(at, "it says what the pods are like"))
	}

	pod := at.Child("spec")
	if policy := template.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(pod.Child("restartPolicy"), policy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(pod.Child("activeDeadlineSeconds"),
			"activeDeadlineSeconds in "+kind+" is not supported: its pods do not end; remove it"))
	}

	errs = append(errs, Images(&template.Spec, pod)...)

	at = path.Child("selector")
	if selector == nil {
		return append(errs, field.Required(at,
			"it says by labels which pods are those of the "+kind+", and must match those of the template"))
	}
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return append(errs, field.Invalid(at, selector,
			"an empty selector is invalid for a "+kind+
				": it would match every pod; name at least one label of the template"))
	}

	malformed := metavalidation.ValidateLabelSelector(selector,
		metavalidation.LabelSelectorValidationOptions{}, at)
	matcher, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil && len(malformed) == 0 {
		malformed = field.ErrorList{field.Invalid(at, selector, err.Error())}
	}
	if len(malformed) > 0 {
		return append(errs, malformed...)
	}

	const most = MostSelectorTerms + 1 // a UnitedDeployment adds one
	if n := SelectorTerms(selector); n > most {
		errs = append(errs, field.TooMany(at, n, most))
	}
	if key := inplace.Selects(matcher); key != "" {
		errs = append(errs, field.Forbidden(at,
			fmt.Sprintf("label %s is the controllers' own, who set and change it: the %s would lose its pods",
				key, kind)))
	}

	if decodeErr == nil && !matcher.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), template.Labels,
			"selector does not match template labels: they must have what spec.selector asks for"))
	}

	return errs
}

// Images validates the images of a template. path is that of the template's spec.
func Images(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	return append(images(spec.InitContainers, path.Child("initContainers")),
		images(spec.Containers, path.Child("containers"))...)
}

// images validates that kubelet can parse the image names. The API server accepts any text, and the pods
// would never start. A missing image is rejected by the API server.
func images(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		image := containers[i].Image
		if image == "" {
			continue
		}
		if _, err := reference.ParseNormalizedNamed(image); err != nil {
			errs = append(errs, field.Invalid(path.Index(i).Child("image"), image,
				"is no image reference: "+err.Error()))
		}
	}
	return errs
}

// Claims validates the names of claim templates (CS-022, CS-035): they do not clash with volumes, and leave
// room for the rest of the names of claims. The API server validates that they are names of volumes.
func Claims(
	claims template.VolumeClaimTemplates, taken []string, longest int, path *field.Path,
) field.ErrorList {
	if err := claims.DecodeError(); err != nil {
		return field.ErrorList{field.Invalid(path, "(not shown)", err.Error())}
	}

	var errs field.ErrorList
	seen := map[string]bool{}
	for _, name := range taken {
		seen[name] = true
	}

	for i := range claims {
		name, at := claims[i].Name, path.Index(i).Child("metadata", "name")
		switch {
		case name == "":
			errs = append(errs, field.Required(at, "a claim template is known by its name"))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, name))
		case len(name) > longest:
			errs = append(errs, field.Invalid(at, name,
				fmt.Sprintf(
					"must be no more than %d characters, so that claims can be named after it and the workload",
					max(longest, 0))))
		}
		seen[name] = true
	}

	return errs
}

// InPlaceOnly validates that a changed template can be applied in place, by the rules that the engine applies
// later (IPU-030 ff). path is that of the spec.
func InPlaceOnly(
	updated, old *template.PodTemplate, qualifies inplace.Options, path *field.Path,
) field.ErrorList {
	if updated.DecodeError() != nil || updated.Equal(*old) {
		return nil
	}

	_, blockers, err := inplace.Compare(old.Raw(), updated.Raw(), qualifies)
	if err != nil {
		return field.ErrorList{field.Forbidden(path,
			fmt.Sprintf(
				"under InPlaceOnly the template may change only if the change can be applied in place: %v", err,
			))}
	}

	var errs field.ErrorList
	for _, blocker := range blockers {
		errs = append(errs, field.Forbidden(path,
			fmt.Sprintf("under InPlaceOnly the template may not be changed at %s: %s",
				blocker.Path, blocker.Rule)))
	}

	return errs
}
