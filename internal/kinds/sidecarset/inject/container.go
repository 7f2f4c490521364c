package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset"
)

// build makes the containers that stand for a sidecar in the pod, one or two, and notes the volumes that they
// use.
func (in *injection) build(s *sidecar, used map[string]bool) ([]injected, error) {
	c := container{env: slices.Clone(s.lists.Env), mounts: slices.Clone(s.lists.VolumeMounts),
		devices: slices.Clone(s.lists.VolumeDevices), envNames: map[string]bool{}, paths: map[string]bool{}}
	for i := range s.spec.Env {
		c.envNames[s.spec.Env[i].Name] = true
	}

	for i := range s.spec.VolumeMounts {
		c.paths[s.spec.VolumeMounts[i].MountPath], used[s.spec.VolumeMounts[i].Name] = true, true
	}

	for i := range s.spec.VolumeDevices {
		c.paths[s.spec.VolumeDevices[i].DevicePath], used[s.spec.VolumeDevices[i].Name] = true, true
	}

	// The order of variables is SS-110.
	c.setEnv(pub.SidecarInjectedEnv, corev1.EnvVar{Name: pub.SidecarInjectedEnv, Value: "true"})
	in.transferEnv(s, &c)
	in.shareVolumes(s, &c)
	c.reorder()
	document := maps.Clone(s.document)
	if s.policy != nil {
		resources, err := in.resources(s)
		if err != nil {
			return nil, fmt.Errorf("%s.resourcesPolicy.%w", s.field, err)
		}
		document["resources"] = encoded(resources)
	}
	names := s.names()
	all := make([]injected, 0, len(names))
	for i, name := range names {
		one, half := maps.Clone(document), c
		if len(names) == 2 {
			image := s.spec.Image
			if i == 1 {
				image = s.spec.UpgradeStrategy.HotUpgradeEmptyImage
			}
			one["name"], one["image"] = encoded(name), encoded(image)
			half.env = slices.Clone(c.env)
			half.setEnv(pub.SidecarSetVersionEnv,
				annotationEnv(pub.SidecarSetVersionEnv, pub.SidecarSetVersionPrefix+name))
			half.setEnv(pub.SidecarSetVersionAltEnv,
				annotationEnv(pub.SidecarSetVersionAltEnv, pub.SidecarSetVersionAltPrefix+name))
		}
		half.write(one)
		all = append(all, injected{name: name,
			before: before(&s.spec, strings.HasPrefix(s.field, "spec.initContainers")), document: one})
	}

	return all, nil
}

func annotationEnv(name, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
		APIVersion: "v1", FieldPath: fmt.Sprintf("metadata.annotations['%s']", key)}}}
}

// encoded writes a value that always can be written.
func encoded(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}

// container is what of a container is added to.
type container struct {
	env, mounts, devices []json.RawMessage
	envNames, paths      map[string]bool
	// as is what variables were copied from that were copied before; their order stays.
	as *app
}

// setEnv appends a variable that must be the only one of its name.
func (c *container) setEnv(name string, variable corev1.EnvVar) {
	c.env = slices.DeleteFunc(c.env, func(item json.RawMessage) bool {
		var named struct{ Name string }
		return json.Unmarshal(item, &named) == nil && named.Name == name
	})
	c.env, c.envNames[name] = append(c.env, encoded(variable)), true
}

// addEnv appends a variable unless there is one of its name.
func (c *container) addEnv(name string, variable json.RawMessage) {
	if !c.envNames[name] {
		c.env, c.envNames[name] = append(c.env, variable), true
	}
}

// reorder puts variables where they were when the pod passed first, if one was copied then.
func (c *container) reorder() {
	if c.as == nil {
		return
	}

	places := map[string]int{}
	for i := range c.as.Container.Env {
		if name := c.as.Container.Env[i].Name; places[name] == 0 {
			places[name] = i + 1
		}
	}

	type placed struct {
		at       int
		variable json.RawMessage
	}
	order := make([]placed, len(c.env))
	for i, variable := range c.env {
		var named struct{ Name string }
		_ = json.Unmarshal(variable, &named) // one that cannot be read has no place
		if order[i] = (placed{places[named.Name], variable}); order[i].at == 0 {
			order[i].at = len(c.as.Container.Env) + 1
		}
	}

	slices.SortStableFunc(order, func(a, b placed) int { return a.at - b.at })
	for i := range order {
		c.env[i] = order[i].variable
	}
}

func (c *container) write(document map[string]json.RawMessage) {
	for field, items := range map[string][]json.RawMessage{"env": c.env, "volumeMounts": c.mounts,
		"volumeDevices": c.devices} {
		if len(items) > 0 {
			document[field] = encoded(items)
		}
	}
}

// transferEnv copies variables of the pod's containers, as they stand before injection.
func (in *injection) transferEnv(s *sidecar, c *container) {
	for _, transfer := range s.spec.TransferEnv {
		source, ok := in.sourceOf(&transfer)
		if !ok {
			continue
		}
		at := slices.IndexFunc(in.apps, func(a app) bool { return a.Name == source })
		if at < 0 {
			continue
		}
		from := &in.apps[at]
		if IsInjected(from.Container) {
			// Perhaps one of the pod that a sidecar replaced when the pod passed first: what was copied then
			// is in our own container.
			if from = in.present(s); from == nil {
				continue
			}
			c.as = from
		}
		names := slices.Clone(transfer.EnvNames)
		if transfer.EnvName != "" {
			names = append(names, transfer.EnvName)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if variable := from.variable(name); variable != nil {
				c.addEnv(name, variable)
			}
		}
	}
}

// sourceOf is the container that variables are copied from.
func (in *injection) sourceOf(transfer *appsv1beta1.TransferEnvVar) (string, bool) {
	if transfer.SourceContainerNameFrom == nil || transfer.SourceContainerNameFrom.FieldRef == nil {
		return transfer.SourceContainerName, transfer.SourceContainerName != ""
	}
	path := transfer.SourceContainerNameFrom.FieldRef.FieldPath
	for prefix, values := range map[string]map[string]string{"metadata.labels['": in.pod.Labels,
		"metadata.annotations['": in.annotations} {
		if key, ok := strings.CutPrefix(path, prefix); ok {
			name, ok := values[strings.TrimSuffix(key, "']")]
			return name, ok
		}
	}
	return "", false
}

// variable is the document of a variable of the container, of several of a name the last, which is what the
// container gets; nil if there is none.
func (a *app) variable(name string) json.RawMessage {
	if a.variables == nil {
		a.variables = make(map[string]json.RawMessage, len(a.Container.Env))
		for i := range a.Container.Env {
			a.variables[a.Container.Env[i].Name] = a.lists.Env[i]
		}
	}
	return a.variables[name]
}

// reference is a use of a variable in a subPathExpr.
var reference = regexp.MustCompile(`\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)`)

// shareVolumes adds the mounts and devices of the pod's own containers (SS-116 to SS-118).
func (in *injection) shareVolumes(s *sidecar, c *container) {
	if s.spec.ShareVolumePolicy.Type == appsv1beta1.ShareVolumePolicyEnabled {
		for a := range in.foreign() {
			for i, mount := range a.Container.VolumeMounts {
				if c.paths[mount.MountPath] {
					continue
				}
				c.paths[mount.MountPath] = true
				c.mounts = append(c.mounts, shared(&mount, a.lists.VolumeMounts[i], s.spec.SecurityContext))
				for _, name := range reference.FindAllStringSubmatch(mount.SubPathExpr, -1) {
					if variable := a.variable(name[1]); variable != nil {
						c.addEnv(name[1], variable)
					}
				}
			}
		}
	}
	if p := s.spec.ShareVolumeDevicePolicy; p != nil && p.Type == appsv1beta1.ShareVolumePolicyEnabled {
		for a := range in.foreign() {
			for i, device := range a.Container.VolumeDevices {
				if !c.paths[device.DevicePath] {
					c.paths[device.DevicePath] = true
					c.devices = append(c.devices, a.lists.VolumeDevices[i])
				}
			}
		}
	}
}

// shared is a mount of another container in one with this security context. Mounts of a container that is not
// privileged cannot go back to the node, and the pod would be refused for one that does; those that others
// make there are still seen.
func shared(
	mount *corev1.VolumeMount, document json.RawMessage, security *corev1.SecurityContext,
) json.RawMessage {
	if ptr.Deref(mount.MountPropagation, "") != corev1.MountPropagationBidirectional ||
		security != nil && ptr.Deref(security.Privileged, false) {
		return document
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(document, &fields) != nil {
		return document
	}
	fields["mountPropagation"] = encoded(corev1.MountPropagationHostToContainer)
	return encoded(fields)
}

// foreign goes through the regular containers that are the pod's own.
func (in *injection) foreign() func(func(*app) bool) {
	return func(yield func(*app) bool) {
		for i := range in.apps {
			if in.apps[i].foreign && !yield(&in.apps[i]) {
				return
			}
		}
	}
}

// targets are the containers whose resources count: the pod's own, and its own native sidecars.
func (in *injection) targets(names *regexp.Regexp) []*corev1.Container {
	var all []*corev1.Container
	for a := range in.foreign() {
		if names.MatchString(a.Name) {
			all = append(all, a.Container)
		}
	}

	for i := range in.pod.Spec.InitContainers {
		c := &in.pod.Spec.InitContainers[i]
		if sidecarset.IsNative(c) && !IsInjected(c) && !in.owned(c.Name) && names.MatchString(c.Name) {
			all = append(all, c)
		}
	}

	return all
}
