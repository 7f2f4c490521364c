package inplace

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/revision"
)

// Blocker is a difference that cannot be applied in place.
type Blocker struct {
	// Path is the path of the difference in the pod template, such as spec.containers[0].env.
	Path string
	// Rule is the reason why it cannot be applied in place.
	Rule string
}

func (b Blocker) String() string { return b.Path + ": " + b.Rule }

// Options define which changes can be made in place besides images and metadata.
type Options struct {
	// EnvFromMetadata assigns metadata that containers read through their environment to these containers,
	// which are restarted when it changes (gate InPlaceUpdateEnvFromMetadata, IPU-091, IPU-094).
	EnvFromMetadata bool
	// Resize allows changes of the quantities of cpu and memory (gate InPlaceWorkloadVerticalScaling, on a
	// server that has pods/resize; IPU-035, IPU-040, IPU-113).
	Resize bool
}

// Compare compares the templates of two revisions as documents and classifies every difference (IPU-031 to
// 042). The change can be made in place if there is no blocker. Compare returns an error if either document
// is not a pod template.
func Compare(oldTemplate, newTemplate []byte, options Options) (*Change, []Blocker, error) {
	oldDoc, err := revision.Canonical(oldTemplate)
	if err != nil {
		return nil, nil, fmt.Errorf("old template: %w", err)
	}

	newDoc, err := revision.Canonical(newTemplate)
	if err != nil {
		return nil, nil, fmt.Errorf("new template: %w", err)
	}

	c := comparison{old: oldDoc, new: newDoc, options: options, change: &Change{}}
	c.object(nil, oldDoc, newDoc)
	c.metadata(object(oldDoc["metadata"]), object(newDoc["metadata"]))

	if options.EnvFromMetadata {
		c.references()
	}

	c.restarts()
	if err := c.quality(); err != nil {
		return nil, nil, err
	}

	c.stops()
	return c.change, c.blockers, nil
}

type comparison struct {
	old, new revision.Document
	options  Options
	change   *Change
	blockers []Blocker
}

func (c *comparison) block(path []string, rule string) {
	c.blockers = append(c.blockers, Blocker{Path: fieldPath(path), Rule: rule})
}

func (c *comparison) object(path []string, old, new revision.Document) {
	keys := maps.Clone(old)
	maps.Copy(keys, new)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if len(path) == 0 && key == "metadata" {
			continue // metadata may differ in any way
		}
		c.value(append(path[:len(path):len(path)], key), old[key], new[key])
	}
}

func (c *comparison) value(path []string, old, new any) {
	if reflect.DeepEqual(old, new) {
		return
	}

	switch oldValue := old.(type) {
	case revision.Document:
		if newValue, ok := new.(revision.Document); ok {
			c.object(path, oldValue, newValue)
			return
		}
	case []any:
		if newValue, ok := new.([]any); ok && ofContainers(path) && len(path) == 2 {
			if len(oldValue) != len(newValue) {
				c.block(path, "containers cannot be added or removed in place")
				return
			}
			for i := range oldValue {
				c.value(append(path[:len(path):len(path)], strconv.Itoa(i)), oldValue[i], newValue[i])
			}
			return
		}
	}

	c.leaf(path, old, new)
}

func ofContainers(path []string) bool {
	return len(path) >= 2 && path[0] == "spec" && (path[1] == "containers" || path[1] == "initContainers")
}

// leaf classifies one difference in the pod's spec.
func (c *comparison) leaf(path []string, old, new any) {
	switch {
	case ofContainers(path) && len(path) == 4 && path[3] == "image":
		c.image(path, old, new)
	case ofContainers(path) && len(path) == 6 && path[3] == "resources":
		c.resource(path, old, new)
	default:
		c.block(path, "only images and resources of containers, and metadata, can change in place")
	}
}

// container returns the container of the new template to which the path leads. If the old template has a
// container of another name at this place, that difference is blocked.
func (c *comparison) container(path []string) revision.Document {
	index, _ := strconv.Atoi(path[2])
	containers, _ := object(c.new["spec"])[path[1]].([]any)
	return object(containers[index])
}

func (c *comparison) image(path []string, old, new any) {
	oldImage, _ := old.(string)
	newImage, _ := new.(string)
	container := c.container(path)
	switch name, _ := container["name"].(string); {
	case oldImage == "" || newImage == "":
		c.block(path, "an image can only be replaced by another one")
	case path[1] == "initContainers" && !restartable(container) &&
		object(object(c.new["metadata"])["annotations"])[pub.InPlaceUpdateInitContainers] != "true":
		c.block(path, "an init container that has ended does not run again; annotation "+
			pub.InPlaceUpdateInitContainers+
			": \"true\" in template.metadata lets its image change, for the next start of the pod's sandbox")
	default:
		put(&c.change.Images, name, newImage)
	}
}

// restartable reports whether the init container is a native sidecar, which runs as long as the pod does.
func restartable(container revision.Document) bool { return container["restartPolicy"] == "Always" }

func (c *comparison) metadata(old, new revision.Document) {
	c.change.Labels = mapChange(object(old["labels"]), object(new["labels"]))
	c.change.Annotations = mapChange(object(old["annotations"]), object(new["annotations"]))
	for _, change := range []*map[string]*string{&c.change.Labels, &c.change.Annotations} {
		if maps.DeleteFunc(*change, func(key string, _ *string) bool { return Own(key) }); len(*change) == 0 {
			*change = nil
		}
	}
	oldFinalizers, newFinalizers := stringsOf(old["finalizers"]), stringsOf(new["finalizers"])
	c.change.AddFinalizers = minus(newFinalizers, oldFinalizers)
	c.change.RemoveFinalizers = minus(oldFinalizers, newFinalizers)
}

// own are the labels and annotations that controllers write on pods.
var own = map[string]bool{
	pub.CloneSetInstanceID: true, pub.ControllerRevisionHash: true, pub.PodTemplateHash: true,
	pub.SpecifiedDelete: true, pub.LifecycleState: true, pub.LifecycleTimestamp: true,
	pub.InPlaceUpdateState: true, pub.InPlaceUpdateStateLegacy: true,
	pub.InPlaceUpdateGrace: true, pub.InPlaceUpdateGraceLegacy: true,
	pub.InPlaceUpdateRestarts: true, pub.RuntimeContainersMeta: true,
	// These identify one pod, and a Service may select it by them.
	appsv1.StatefulSetPodNameLabel: true, appsv1.PodIndexLabel: true,
	// Webhooks write these to one pod: its subset and its sidecars.
	pub.MatchedWorkloadSpread: true, pub.SidecarSetHash: true, pub.SidecarSetHashWithoutImage: true,
	pub.SidecarSetInjectedList:       true,
	pub.SidecarSetInPlaceUpdateState: true, pub.SidecarSetWorkingHotUpgradeContainer: true,
}

// Own reports whether a label or an annotation belongs to the controllers. A template may contain it because
// it was copied from a running pod; it is then set neither on new pods nor on existing ones (IPU-082, CS-041,
// CS-050).
func Own(key string) bool { return own[key] }

// Selects returns a label of the controllers that the selector requires, empty if there is none. Since the
// controllers set and change these labels, new pods would not match, or pods would be lost in the middle of a
// rollout.
func Selects(selector labels.Selector) string {
	requirements, _ := selector.Requirements()
	for i := range requirements {
		if Own(requirements[i].Key()) {
			return requirements[i].Key()
		}
	}
	return ""
}

func mapChange(old, new revision.Document) map[string]*string {
	change := map[string]*string{}
	for key, value := range new {
		if text, ok := value.(string); ok && old[key] != value {
			change[key] = &text
		}
	}

	for key := range old {
		if _, ok := new[key]; !ok {
			change[key] = nil
		}
	}

	if len(change) == 0 {
		return nil
	}
	return change
}

func object(value any) revision.Document {
	doc, _ := value.(revision.Document)
	return doc
}

func stringsOf(value any) []string {
	list, _ := value.([]any)
	var out []string
	for _, entry := range list {
		if text, ok := entry.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

func minus(a, b []string) []string {
	var out []string
	for _, entry := range a {
		if !slices.Contains(b, entry) {
			out = append(out, entry)
		}
	}
	return out
}

// fieldPath formats {"spec","containers","0","image"} as spec.containers[0].image.
func fieldPath(path []string) string {
	var b strings.Builder
	for i, part := range path {
		if _, err := strconv.Atoi(part); err == nil {
			b.WriteString("[" + part + "]")
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(cmp.Or(part, `""`))
	}
	return b.String()
}
