package inplace

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// EnvReference returns the label or annotation key that an environment variable reads (IPU-092). References
// to whole maps, literal values, and the two variables with the version for sidecars do not count.
func EnvReference(env *corev1.EnvVar) (key string, label, ok bool) {
	if env.Value != "" || env.ValueFrom == nil || env.ValueFrom.FieldRef == nil ||
		env.Name == pub.SidecarSetVersionEnv || env.Name == pub.SidecarSetVersionAltEnv {
		return "", false, false
	}

	path := env.ValueFrom.FieldRef.FieldPath
	for prefix, isLabel := range map[string]bool{"metadata.labels['": true, "metadata.annotations['": false} {
		if rest, found := strings.CutPrefix(path, prefix); found {
			if key, found := strings.CutSuffix(rest, "']"); found && key != "" {
				return key, isLabel, true
			}
		}
	}

	return "", false, false
}

// references moves the metadata that containers read through their environment from the general change to the
// parts of these containers. Removed and new keys count, since they change the environment, too.
func (c *comparison) references() {
	var labels, annotations []string
	for _, container := range c.running() {
		refs := RefMetadata{}
		for _, key := range keysRead(container, true) {
			if value, changed := c.change.Labels[key]; changed {
				put(&refs.Labels, key, value)
				labels = append(labels, key)
			}
		}
		for _, key := range keysRead(container, false) {
			if value, changed := c.change.Annotations[key]; changed {
				put(&refs.Annotations, key, value)
				annotations = append(annotations, key)
			}
		}
		if name, _ := container["name"].(string); len(refs.Labels)+len(refs.Annotations) > 0 {
			put(&c.change.Refs, name, refs)
		}
	}

	c.change.Labels = filter(c.change.Labels, func(key string) bool { return !slices.Contains(labels, key) })
	c.change.Annotations = filter(c.change.Annotations,
		func(key string) bool { return !slices.Contains(annotations, key) })
}

// running returns the containers of the new template that run as long as the pod does.
func (c *comparison) running() []revision.Document {
	var running []revision.Document
	spec := object(c.new["spec"])
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		for _, container := range containers {
			if doc := object(container); list == "containers" || restartable(doc) {
				running = append(running, doc)
			}
		}
	}
	return running
}

func keysRead(container revision.Document, labels bool) []string {
	var keys []string
	list, _ := container["env"].([]any)
	for _, entry := range list {
		env := object(entry)
		name, _ := env["name"].(string)
		value, _ := env["value"].(string)
		path, _ := object(object(env["valueFrom"])["fieldRef"])["fieldPath"].(string)
		key, label, ok := EnvReference(&corev1.EnvVar{Name: name, Value: value,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}})
		if ok && label == labels {
			keys = append(keys, key)
		}
	}

	return keys
}

// restarts requests a restart of every container if the template's restart annotation has a new value. This
// includes containers whose image changes: if the image is changed back before kubelet acts, nothing else
// would restart them.
func (c *comparison) restarts() {
	asked := c.change.Annotations[pub.RestartedAt]
	if !c.options.EnvFromMetadata || asked == nil || *asked == "" {
		return
	}
	for _, container := range c.running() {
		name, _ := container["name"].(string)
		c.change.Restarts = append(c.change.Restarts, name)
	}
	slices.Sort(c.change.Restarts)
}

// stops lists the containers that the change stops, and reads from the template for which of them the pod
// stays ready.
func (c *comparison) stops() {
	stops := map[string]bool{}
	spec := object(c.new["spec"])
	ordinary, _ := spec["initContainers"].([]any)
	for name := range c.change.Images {
		stops[name] = !slices.ContainsFunc(ordinary, func(container any) bool {
			doc := object(container)
			return doc["name"] == name && !restartable(doc)
		})
	}

	for name := range c.change.Refs {
		stops[name] = true
	}
	for _, name := range c.change.Restarts {
		stops[name] = true
	}
	for _, container := range c.running() {
		if name, _ := container["name"].(string); restartsForResize(container, c.change.Resources[name]) {
			stops[name] = true
		}
	}

	for _, name := range slices.Sorted(maps.Keys(stops)) {
		if stops[name] {
			c.change.Stops = append(c.change.Stops, name)
		}
	}

	list, _ := object(object(c.new["metadata"])["annotations"])[pub.InPlaceUpdateKeepReady].(string)
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); slices.Contains(c.change.Stops, name) {
			c.change.KeepReady = append(c.change.KeepReady, name)
		}
	}
}
