package ephemeraljob

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/fieldcheck"
	"github.com/afloat-project/afloat/internal/engine/imageref"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Document is a JSON object as contained in an admission request.
type Document = map[string]any

// mostContainers limits the containers of one job, since each plan looks for all of their names in all pods.
const mostContainers = 100

// allowed are the fields of a container that may be set.
var allowed = []string{"args", "command", "env", "envFrom", "image", "imagePullPolicy", "name",
	"securityContext", "stdin", "stdinOnce", "targetContainerName", "terminationMessagePath",
	"terminationMessagePolicy", "tty", "volumeDevices", "volumeMounts", "workingDir"}

var containersPath = field.NewPath("spec", "template", "ephemeralContainers")

func containersOf(job Document) []any {
	spec, _ := job["spec"].(Document)
	template, _ := spec["template"].(Document)
	list, _ := template["ephemeralContainers"].([]any)
	return list
}

// Default returns the patch that sets the defaults of a job (EJ-012, EJ-015) and, like the core API, those of
// its containers (EJ-026). An update that does not change the containers leaves them as they are; old is the
// stored job.
func Default(job, old Document) (patch []jsonpatch.Operation) {
	add := func(object Document, at, key string, value any) {
		if present, ok := object[key]; !ok || present == nil || present == "" {
			patch = append(patch, jsonpatch.NewOperation("add", at+"/"+key, value))
		}
	}

	spec, ok := job["spec"].(Document)
	if !ok {
		return nil // it is rejected as such
	}

	add(spec, "/spec", "parallelism", defaultParallelism)
	add(spec, "/spec", "ttlSecondsAfterFinished", defaultTTL)
	if old != nil && sameContainers(containersOf(job), containersOf(old)) {
		return patch
	}

	for i, item := range containersOf(job) {
		container, ok := item.(Document)
		if !ok {
			continue
		}
		at := fmt.Sprintf("/spec/template/ephemeralContainers/%d", i)
		image, _ := container["image"].(string)
		policy := corev1.PullIfNotPresent
		if _, tag, err := imageref.Parse(image); err == nil && tag == "latest" {
			policy = corev1.PullAlways
		}
		add(container, at, "imagePullPolicy", policy)
		add(container, at, "terminationMessagePolicy", corev1.TerminationMessageReadFile)
	}

	return patch
}

// sameContainers reports whether two lists of containers say the same.
func sameContainers(a, b any) bool {
	return jsonfields.Same(revision.Written[[]corev1.EphemeralContainer](a), revision.Written[[]corev1.EphemeralContainer](b))
}

// Validate validates a job by itself; old is nil on creation (EJ-025 to EJ-030). The API server validates the
// environment, the security context and the mounts; see Template.
func Validate(document Document, job, old *appsv1alpha1.EphemeralJob) (errs field.ErrorList) {
	spec, path := &job.Spec, field.NewPath("spec")
	stored := &appsv1alpha1.EphemeralJobSpec{}
	if old != nil {
		stored = &old.Spec
	}

	numbers(&errs, path.Child("replicas"), spec.Replicas, stored.Replicas)
	numbers(&errs, path.Child("parallelism"), spec.Parallelism, stored.Parallelism)
	numbers(&errs, path.Child("activeDeadlineSeconds"), spec.ActiveDeadlineSeconds,
		stored.ActiveDeadlineSeconds)
	numbers(&errs, path.Child("ttlSecondsAfterFinished"), spec.TTLSecondsAfterFinished,
		stored.TTLSecondsAfterFinished)

	if old != nil { // the stored job was validated when it was created, and cannot be repaired
		if !sameSelector(spec.Selector, old.Spec.Selector) {
			errs = append(errs, field.Forbidden(path.Child("selector"),
				"cannot be changed: create another job"))
		}
		if !sameContainers(spec.Template.EphemeralContainers, old.Spec.Template.EphemeralContainers) {
			errs = append(errs, field.Forbidden(path.Child("template"),
				"cannot be changed: create another job"))
		}
		return errs
	}

	errs = append(errs, fieldcheck.RequiredSelector(spec.Selector, path.Child("selector"))...)
	if err := spec.Template.EphemeralContainers.DecodeError(); err != nil {
		return append(errs, field.Invalid(containersPath, field.OmitValueType{}, err.Error()))
	}

	list := spec.Template.EphemeralContainers.Containers
	switch {
	case len(list) == 0:
		errs = append(errs, field.Required(containersPath, "name at least one container"))
	case len(list) > mostContainers:
		return append(errs, field.TooMany(containersPath, len(list), mostContainers))
	}

	documents := containersOf(document)
	names := map[string]bool{}
	for i := range list {
		at := containersPath.Index(i)
		if i < len(documents) {
			container, _ := documents[i].(Document)
			errs = append(errs, checkFields(container, at)...)
		}
		errs = append(errs, checkContainer(&list[i], at)...)
		if names[list[i].Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), list[i].Name))
		}
		names[list[i].Name] = true
	}

	return errs
}

// numbers rejects a negative number, unless it is stored already.
func numbers[N int32 | int64](errs *field.ErrorList, path *field.Path, value, stored *N) {
	if value != nil && *value < 0 && (stored == nil || *stored != *value) {
		*errs = append(*errs, field.Invalid(path, *value, "must be greater than or equal to 0"))
	}
}

func sameSelector(a, b *metav1.LabelSelector) bool {
	left, _ := json.Marshal(a)
	right, _ := json.Marshal(b)
	return string(left) == string(right)
}

// checkFields rejects the fields that may not be set.
func checkFields(container Document, path *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(container)) {
		if jsonfields.Absent(container[name]) || slices.Contains(allowed, name) {
			continue
		}
		detail := "cannot be set for an Ephemeral Container"
		if _, known := jsonfields.Of(reflect.TypeFor[corev1.Container]())[name]; !known {
			detail += ": it is not a known field"
		}
		errs = append(errs, field.Forbidden(path.Child(name), detail))
	}
	return errs
}

// checkContainer validates a container.
func checkContainer(c *corev1.EphemeralContainer, path *field.Path) (errs field.ErrorList) {
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		for _, why := range validation.IsDNS1123Label(c.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), c.Name, why))
		}
	}

	switch {
	case strings.TrimSpace(c.Image) == "":
		errs = append(errs, field.Required(path.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(path.Child("image"), c.Image,
			"must not have leading or trailing whitespace"))
	}

	policies := []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}
	if c.ImagePullPolicy != "" && !slices.Contains(policies, c.ImagePullPolicy) {
		errs = append(errs, field.NotSupported(path.Child("imagePullPolicy"), c.ImagePullPolicy, policies))
	}

	messages := []corev1.TerminationMessagePolicy{corev1.TerminationMessageReadFile,
		corev1.TerminationMessageFallbackToLogsOnError}
	if c.TerminationMessagePolicy != "" && !slices.Contains(messages, c.TerminationMessagePolicy) {
		errs = append(errs, field.NotSupported(path.Child("terminationMessagePolicy"),
			c.TerminationMessagePolicy, messages))
	}

	for i := range c.Env {
		if c.Env[i].Name == pub.EphemeralJobEnv {
			errs = append(errs, field.Forbidden(path.Child("env").Index(i),
				pub.EphemeralJobEnv+" cannot be set: the manager marks containers with it"))
		}
	}

	for i := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		if c.VolumeMounts[i].SubPath != "" {
			errs = append(errs, field.Forbidden(at.Child("subPath"),
				"cannot be set for an Ephemeral Container"))
		}
		if c.VolumeMounts[i].SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("subPathExpr"),
				"cannot be set for an Ephemeral Container"))
		}
	}

	return errs
}

// Template returns a pod template with the containers of the job as ordinary ones, for the API server to
// validate by its own rules, or nil if there is nothing to validate. It has the volumes that the containers
// name, in place of those of the pods.
func Template(job Document) Document {
	var containers []any
	volumes, named := []any{}, map[string]bool{}
	for _, item := range containersOf(job) {
		container, ok := item.(Document)
		if !ok {
			return nil
		}

		plain := Document{}
		for key, value := range container {
			if key != "targetContainerName" && slices.Contains(allowed, key) {
				plain[key] = value
			}
		}
		containers = append(containers, plain)

		for list, source := range map[string]Document{"volumeMounts": {"emptyDir": Document{}},
			"volumeDevices": {"persistentVolumeClaim": Document{"claimName": "any"}}} {
			items, _ := plain[list].([]any)
			for _, item := range items {
				mount, _ := item.(Document)
				if name, _ := mount["name"].(string); name != "" && !named[name] {
					named[name] = true
					volume := Document{"name": name}
					maps.Copy(volume, source)
					volumes = append(volumes, volume)
				}
			}
		}
	}

	if len(containers) == 0 {
		return nil
	}

	return Document{"metadata": Document{"labels": Document{"ephemeral": "job"}},
		"spec": Document{"containers": containers, "volumes": volumes}}
}

// Placed converts the path of an error in Template to that in the job, or to an empty string if the error is
// not about the containers.
func Placed(path string) string {
	rest, ok := strings.CutPrefix(path, "spec.template.spec.containers[")
	if !ok {
		return ""
	}
	return containersPath.String() + "[" + rest
}
