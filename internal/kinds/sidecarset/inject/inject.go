package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-openapi/jsonpointer"
	operations "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// Options are options of Inject.
type Options struct {
	// SortByName is the gate EnableSortSidecarContainerByName (SS-100).
	SortByName bool
	// Now is the time of the records (SS-180).
	Now time.Time
}

// Result is what Inject changes in a pod.
type Result struct {
	// Operations are a JSON patch of the pod.
	Operations []operations.Operation
	// Warnings are warnings for the creator of the pod.
	Warnings []string
}

// Error is why a SidecarSet makes a pod be rejected (SS-094).
type Error struct {
	SidecarSet string
	Err        error
}

func (e *Error) Error() string { return fmt.Sprintf("SidecarSet %s: %v", e.SidecarSet, e.Err) }

// Unwrap returns the error without the SidecarSet.
func (e *Error) Unwrap() error { return e.Err }

// Inject returns the changes that the templates make to the pod, in the order of their names (SS-093). raw is
// the document that pod was decoded from. An error is an *Error, and then nothing at all is injected
// (SS-094).
func Inject(raw []byte, pod *corev1.Pod, templates []*Template, options Options) (Result, error) {
	if len(templates) == 0 {
		return Result{}, nil
	}

	templates = slices.SortedFunc(slices.Values(templates),
		func(a, b *Template) int { return cmp.Compare(a.Name, b.Name) })
	in := &injection{pod: pod, templates: templates, annotations: maps.Clone(pod.Annotations)}
	if in.annotations == nil {
		in.annotations = map[string]string{}
	}

	for _, t := range templates {
		if err := in.patchMetadata(t); err != nil {
			return Result{}, &Error{t.Name, err}
		}
	}

	if err := in.readApps(raw); err != nil {
		return Result{}, &Error{templates[0].Name, err}
	}

	for _, t := range templates {
		if err := in.add(t); err != nil {
			return Result{}, &Error{t.Name, err}
		}
	}

	if err := in.record(options.Now); err != nil {
		return Result{}, err
	}

	byName := func(a, b injected) int { return cmp.Compare(a.name, b.name) }
	slices.SortStableFunc(in.init, byName)
	if options.SortByName {
		slices.SortStableFunc(in.regular, byName)
	}

	changes := in.annotationChanges()
	changes = append(changes, in.placed("initContainers", pod.Spec.InitContainers, in.init)...)
	changes = append(changes, in.placed("containers", pod.Spec.Containers, in.regular)...)
	changes = append(changes, added("/spec/volumes", len(pod.Spec.Volumes), in.volumes)...)
	changes = append(changes, added("/spec/imagePullSecrets", len(pod.Spec.ImagePullSecrets),
		in.pullSecrets)...)
	return Result{Operations: changes, Warnings: in.warnings}, nil
}

// injection is the state of the injection into one pod.
type injection struct {
	pod         *corev1.Pod
	templates   []*Template
	annotations map[string]string
	apps        []app
	inits       []app

	init, regular []injected
	volumes       []any
	pullSecrets   []any
	warnings      []string
}

// injected is a container to be put into the pod.
type injected struct {
	name       string
	sidecarSet string
	before     bool
	document   map[string]json.RawMessage
}

// app is a container of the pod.
type app struct {
	*corev1.Container
	lists
	// foreign reports that the container does not come from a SidecarSet and is not replaced by one.
	foreign bool
	// variables are the documents of environment variables by name. They are computed when first needed.
	variables map[string]json.RawMessage
}

// IsInjected reports whether a container came from a SidecarSet (SS-106).
func IsInjected(c *corev1.Container) bool {
	return slices.ContainsFunc(c.Env,
		func(e corev1.EnvVar) bool { return e.Name == pub.SidecarInjectedEnv && e.Value == "true" })
}

func (in *injection) owned(name string) bool {
	return slices.ContainsFunc(in.templates, func(t *Template) bool { return t.owned[name] })
}

// readApps parses the pod's containers, with the documents of what may be copied from them.
func (in *injection) readApps(raw []byte) error {
	var document struct {
		Spec struct {
			Containers     []lists `json:"containers"`
			InitContainers []lists `json:"initContainers"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		return fmt.Errorf("reading the containers of the pod: %w", err)
	}

	for _, list := range []struct {
		into       *[]app
		documents  []lists
		containers []corev1.Container
	}{{&in.apps, document.Spec.Containers, in.pod.Spec.Containers},
		{&in.inits, document.Spec.InitContainers, in.pod.Spec.InitContainers}} {
		if len(list.documents) != len(list.containers) {
			return fmt.Errorf("the document of the pod has %d containers, not %d", len(list.documents),
				len(list.containers))
		}
		for i := range list.containers {
			c := &list.containers[i]
			*list.into = append(*list.into,
				app{Container: c, lists: list.documents[i], foreign: !IsInjected(c) && !in.owned(c.Name)})
		}
	}

	return nil
}

// present returns the container that a sidecar already has in the pod, or nil if there is none.
func (in *injection) present(s *sidecar) *app {
	for _, list := range [][]app{in.apps, in.inits} {
		for i := range list {
			if list[i].Name == s.names()[0] && IsInjected(list[i].Container) {
				return &list[i]
			}
		}
	}
	return nil
}

func (in *injection) patchMetadata(t *Template) error {
	changed, err := sidecarset.PatchMetadata(in.annotations, t.metadata)
	if err != nil {
		return fmt.Errorf("spec.patchPodMetadata: %w", err)
	}
	maps.Copy(in.annotations, changed)
	return nil
}

// add builds the containers of one SidecarSet and the volumes that they need.
func (in *injection) add(t *Template) error {
	if err := in.clashes(t); err != nil {
		return err
	}

	used := map[string]bool{}
	for i := range t.init {
		all, err := in.build(&t.init[i], used)
		if err != nil {
			return err
		}
		for _, one := range all {
			one.sidecarSet = t.Name
			in.init = append(in.init, one)
		}
	}

	for i := range t.regular {
		all, err := in.build(&t.regular[i], used)
		if err != nil {
			return err
		}
		for _, one := range all {
			one.sidecarSet = t.Name
			in.regular = append(in.regular, one)
		}
	}

	for _, v := range t.volumes {
		present := slices.ContainsFunc(in.pod.Spec.Volumes,
			func(p corev1.Volume) bool { return p.Name == v.name }) ||
			slices.ContainsFunc(in.volumes, func(p any) bool { return p.(volume).name == v.name })
		if used[v.name] && !present {
			in.volumes = append(in.volumes, v)
		}
	}

	for _, secret := range t.pullSecrets {
		if !slices.Contains(in.pod.Spec.ImagePullSecrets, secret) &&
			!slices.Contains(in.pullSecrets, any(secret)) {
			in.pullSecrets = append(in.pullSecrets, secret)
		}
	}

	return nil
}

// clashes rejects a pod if a sidecar has the name of a container in the other list. The API server would
// reject it too, but without saying where the name comes from.
func (in *injection) clashes(t *Template) error {
	var errs field.ErrorList
	check := func(list string, containers []corev1.Container, sidecars []sidecar, kind string) {
		for i := range containers {
			for j := range sidecars {
				if slices.Contains(sidecars[j].names(), containers[i].Name) {
					errs = append(errs,
						field.Invalid(field.NewPath("spec", list).Index(i).Child("name"), containers[i].Name,
							fmt.Sprintf("SidecarSet %s adds %s of this name (%s)", t.Name, kind,
								sidecars[j].field)))
				}
			}
		}
	}
	check("containers", in.pod.Spec.Containers, t.init, "an init container")
	check("initContainers", in.pod.Spec.InitContainers, t.regular, "a container")
	return errs.ToAggregate()
}

// MarshalJSON returns the document.
func (v volume) MarshalJSON() ([]byte, error) { return v.document, nil }

// record writes what was injected to the annotations.
func (in *injection) record(now time.Time) error {
	first := in.templates[0].Name // the SidecarSet named in errors about the pod
	records, err := sidecarset.ReadRecords(in.annotations[pub.SidecarSetHash])
	if err != nil {
		return &Error{first, fmt.Errorf("annotation %s of the pod: %w", pub.SidecarSetHash, err)}
	}

	imageless, err := sidecarset.ReadRecords(in.annotations[pub.SidecarSetHashWithoutImage])
	if err != nil {
		return &Error{first, fmt.Errorf("annotation %s of the pod: %w", pub.SidecarSetHashWithoutImage, err)}
	}

	working, err := sidecarset.ReadWorkingContainers(in.annotations[pub.SidecarSetWorkingHotUpgradeContainer])
	if err != nil {
		return &Error{first, fmt.Errorf("annotation %s of the pod: %w",
			pub.SidecarSetWorkingHotUpgradeContainer, err)}
	}

	var names []string
	hot := false
	for _, t := range in.templates {
		record := pub.SidecarSetRecord{UpdateTimestamp: metav1.NewTime(now.UTC()), Hash: t.Hash,
			SidecarSetName: t.Name, SidecarList: t.names, ControllerRevision: t.Revision}
		records[t.Name] = record
		record.Hash, record.ControllerRevision = t.HashWithoutImage, ""
		imageless[t.Name] = record
		names = append(names, t.Name)
		for i := range t.regular {
			if pair := t.regular[i].names(); len(pair) == 2 {
				hot, working[t.regular[i].spec.Name] = true, pair[0]
				maps.Copy(in.annotations, map[string]string{
					pub.SidecarSetVersionPrefix + pair[0]: "1", pub.SidecarSetVersionAltPrefix + pair[0]: "0",
					pub.SidecarSetVersionPrefix + pair[1]: "0", pub.SidecarSetVersionAltPrefix + pair[1]: "1",
				})
			}
		}
	}

	in.annotations[pub.SidecarSetHash], in.annotations[pub.SidecarSetHashWithoutImage] =
		records.String(), imageless.String()
	in.annotations[pub.SidecarSetInjectedList] = sidecarset.InjectedList(
		in.annotations[pub.SidecarSetInjectedList], names...)
	if hot {
		in.annotations[pub.SidecarSetWorkingHotUpgradeContainer] = working.String()
	}

	return nil
}

func (in *injection) annotationChanges() []operations.Operation {
	if len(in.pod.Annotations) == 0 {
		return []operations.Operation{operations.NewOperation("add", "/metadata/annotations", in.annotations)}
	}
	var changes []operations.Operation
	for _, key := range slices.Sorted(maps.Keys(in.annotations)) {
		if before, ok := in.pod.Annotations[key]; !ok || before != in.annotations[key] {
			changes = append(changes,
				operations.NewOperation("add", "/metadata/annotations/"+jsonpointer.Escape(key),
					in.annotations[key]))
		}
	}
	return changes
}

// placed puts containers into a list of the pod. A container replaces one of the same name, or else comes
// before or after all others.
func (in *injection) placed(
	list string, present []corev1.Container, containers []injected,
) []operations.Operation {
	var changes []operations.Operation
	var before, after []any
	taken := map[int]bool{}
	for _, c := range containers {
		at := -1
		for i := range present {
			if present[i].Name == c.name && !taken[i] {
				at = i
				break
			}
		}
		switch {
		case at >= 0:
			taken[at] = true
			changes = append(changes,
				operations.NewOperation("replace", fmt.Sprintf("/spec/%s/%d", list, at), c.document))
			if !IsInjected(&present[at]) {
				in.warnings = append(in.warnings,
					fmt.Sprintf("spec.%s[%d]: container %s of the pod is replaced by that of SidecarSet %s",
						list, at, c.name, c.sidecarSet))
			}
		case c.before:
			before = append(before, c.document)
		default:
			after = append(after, c.document)
		}
	}

	if len(present) == 0 {
		return append(changes, added("/spec/"+list, 0, append(before, after...))...)
	}

	for i, document := range before {
		changes = append(changes, operations.NewOperation("add",
			fmt.Sprintf("/spec/%s/%d", list, i), document))
	}

	return append(changes, added("/spec/"+list, len(present), after)...)
}

// added appends items to a list of the pod that already has the given number of items.
func added(path string, present int, items []any) []operations.Operation {
	if len(items) == 0 {
		return nil
	}
	if present == 0 {
		return []operations.Operation{operations.NewOperation("add", path, items)}
	}
	var changes []operations.Operation
	for _, item := range items {
		changes = append(changes, operations.NewOperation("add", path+"/-", item))
	}
	return changes
}

// before reports whether a sidecar comes before the pod's containers. The field was defaulted when the
// SidecarSet was written.
func before(s *appsv1beta1.SidecarContainerSpec, init bool) bool {
	if s.PodInjectPolicy == "" {
		return !init
	}
	return s.PodInjectPolicy == appsv1beta1.BeforeAppContainerType
}
