package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/expression"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// Template is a SidecarSet as it is injected: its spec or a revision of it, read once for all pods. It is
// immutable.
type Template struct {
	// Name is that of the SidecarSet.
	Name string
	// Hash and HashWithoutImage are recorded in the pods, and Revision, the name of the ControllerRevision
	// that holds this; empty if it is not known (SS-181).
	Hash, HashWithoutImage, Revision string

	names         []string // as in the record
	owned         map[string]bool
	init, regular []sidecar
	volumes       []volume
	pullSecrets   []corev1.LocalObjectReference
	metadata      []appsv1beta1.SidecarSetPatchPodMetadata
}

// sidecar is a container of a Template.
type sidecar struct {
	// field is its path in the SidecarSet.
	field string
	spec  appsv1beta1.SidecarContainerSpec
	// document is the container without what only SidecarSets have; lists are those of it that are added to.
	document map[string]json.RawMessage
	lists    lists
	policy   *resourcesPolicy
}

// lists are the lists of a container that are added to, item by item as the typed view has them.
type lists struct {
	Env           []json.RawMessage `json:"env"`
	VolumeMounts  []json.RawMessage `json:"volumeMounts"`
	VolumeDevices []json.RawMessage `json:"volumeDevices"`
}

type volume struct {
	name     string
	document json.RawMessage
}

// sidecarOnly are the fields that only containers of SidecarSets have.
var sidecarOnly = []string{"podInjectPolicy", "upgradeStrategy", "shareVolumePolicy",
	"shareVolumeDevicePolicy", "transferEnv", "resourcesPolicy"}

// NewTemplate reads a spec that has its defaults. Hashes are computed where they are empty. An error names
// the field.
func NewTemplate(
	name string, spec *appsv1beta1.SidecarSetSpec, hash, hashWithoutImage, revision string,
) (*Template, error) {
	t := &Template{Name: name, Hash: hash, HashWithoutImage: hashWithoutImage, Revision: revision,
		owned: map[string]bool{}, pullSecrets: spec.ImagePullSecrets, metadata: spec.PatchPodMetadata}
	var err error
	if t.init, err = t.sidecars("spec.initContainers", spec.InitContainers); err != nil {
		return nil, err
	}
	if t.regular, err = t.sidecars("spec.containers", spec.Containers); err != nil {
		return nil, err
	}
	if t.volumes, err = volumes(spec.Volumes); err != nil {
		return nil, fmt.Errorf("spec.volumes: %w", err)
	}
	if t.names = sidecarset.Names(spec); t.names == nil {
		t.names = []string{}
	}
	if t.Hash == "" {
		if t.Hash, err = sidecarset.Hash(spec); err != nil {
			return nil, err
		}
	}
	if t.HashWithoutImage == "" {
		if t.HashWithoutImage, err = sidecarset.HashWithoutImage(spec); err != nil {
			return nil, err
		}
	}

	return t, nil
}

func (t *Template) sidecars(field string, containers []appsv1beta1.SidecarContainer) ([]sidecar, error) {
	all := make([]sidecar, len(containers))
	for i := range containers {
		path := fmt.Sprintf("%s[%d]", field, i)
		one, err := newSidecar(path, &containers[i])
		if err != nil {
			return nil, err
		}
		all[i] = one
		for _, name := range append(one.names(), one.spec.Name) {
			t.owned[name] = true
		}
	}

	return all, nil
}

func newSidecar(field string, c *appsv1beta1.SidecarContainer) (sidecar, error) {
	if err := c.DecodeError(); err != nil { // SS-D24: never without what cannot be understood
		return sidecar{}, fmt.Errorf("%s: %w", field, err)
	}

	text, err := c.MarshalJSON()
	if err != nil {
		return sidecar{}, fmt.Errorf("%s: %w", field, err)
	}

	out := sidecar{field: field}
	for _, into := range []any{&out.spec, &out.document, &out.lists} {
		if err := json.Unmarshal(text, into); err != nil {
			return sidecar{}, fmt.Errorf("%s: %w", field, err)
		}
	}

	for _, field := range sidecarOnly {
		delete(out.document, field)
	}

	if out.policy, err = newResourcesPolicy(out.spec.ResourcesPolicy); err != nil {
		return sidecar{}, fmt.Errorf("%s.resourcesPolicy.%w", field, err)
	}

	return out, nil
}

// names are those that the container has in a pod.
func (s *sidecar) names() []string {
	if s.spec.UpgradeStrategy.UpgradeType == appsv1beta1.SidecarContainerHotUpgrade {
		first, second := sidecarset.HotNames(s.spec.Name)
		return []string{first, second}
	}
	return []string{s.spec.Name}
}

func volumes(list appsv1beta1.SidecarVolumes) ([]volume, error) {
	if err := list.DecodeError(); err != nil {
		return nil, err
	}
	if list.IsZero() {
		return nil, nil
	}

	text, err := list.MarshalJSON()
	if err != nil {
		return nil, err
	}

	var documents []json.RawMessage
	if err := json.Unmarshal(text, &documents); err != nil {
		return nil, fmt.Errorf("reading the volumes: %w", err)
	}

	all := make([]volume, len(documents))
	for i := range documents {
		all[i] = volume{list.List[i].Name, documents[i]}
	}

	return all, nil
}

// resourcesPolicy is a ResourcesPolicy made ready (SS-130 to SS-142).
type resourcesPolicy struct {
	mode             appsv1beta1.TargetContainersModeType
	names            *regexp.Regexp
	limits, requests map[corev1.ResourceName]*expression.Expression
}

func newResourcesPolicy(p *appsv1beta1.ResourcesPolicy) (*resourcesPolicy, error) {
	if p == nil {
		return nil, nil
	}

	names, err := regexp.Compile(p.TargetContainersNameRegex)
	if err != nil {
		return nil, fmt.Errorf("targetContainersNameRegex: %w", err)
	}

	out := &resourcesPolicy{mode: p.TargetContainersMode, names: names}
	if e := p.ResourcesExpr.Limits; e != nil {
		if out.limits, err = expressions(*e); err != nil {
			return nil, fmt.Errorf("resourcesExpr.limits.%w", err)
		}
	}
	if e := p.ResourcesExpr.Requests; e != nil {
		if out.requests, err = expressions(appsv1beta1.ResourceExprLimits(*e)); err != nil {
			return nil, fmt.Errorf("resourcesExpr.requests.%w", err)
		}
	}

	return out, nil
}

// expressions are those that are not empty.
func expressions(e appsv1beta1.ResourceExprLimits) (map[corev1.ResourceName]*expression.Expression, error) {
	out := map[corev1.ResourceName]*expression.Expression{}
	texts := map[corev1.ResourceName]string{corev1.ResourceCPU: e.CPU, corev1.ResourceMemory: e.Memory}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if texts[name] == "" {
			continue
		}
		parsed, err := expression.Parse(texts[name], expression.Variable(name))
		if err != nil {
			return nil, fmt.Errorf("%s: invalid expression: %w", name, err)
		}
		out[name] = parsed
	}

	return out, nil
}
