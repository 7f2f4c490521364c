package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/registry"
)

// kind returns the kind in the version that the cluster stores, because older servers have v1alpha1 only.
func (d *doctor) kind(ctx context.Context, name string) (schema.GroupVersionKind, error) {
	if d.stored == nil {
		d.stored = map[string]schema.GroupVersionKind{}
		if err := d.definitions(ctx, func(definition *unstructured.Unstructured) {
			stored := installation.StoredKind(definition)
			d.stored[stored.Kind] = stored
		}); err != nil && !isForbidden(err) {
			return schema.GroupVersionKind{}, err
		}
	}

	if stored, ok := d.stored[name]; ok {
		return stored, nil
	}

	for i := range registry.Kinds {
		if registry.Kinds[i].Name == name {
			return registry.Kinds[i].Stored(), nil
		}
	}

	return schema.GroupVersionKind{}, fmt.Errorf("%s is none of the project's kinds", name)
}

// each calls do for all objects of a kind of the project.
func (d *doctor) each(ctx context.Context, name string, do func(*unstructured.Unstructured) error) error {
	kind, err := d.kind(ctx, name)
	if err != nil {
		return err
	}
	return installation.Each(ctx, d.client, kind, do)
}

// ready reports whether the Ready condition of an object is True, whether there is one, and for how long it
// has been as it is.
func (d *doctor) ready(object *unstructured.Unstructured) (is, known bool, since time.Duration) {
	for _, condition := range installation.Maps(object.Object, "status", "conditions") {
		if condition["type"] == "Ready" {
			return condition["status"] == "True", true,
				d.age(installation.Text(condition, "lastTransitionTime"))
		}
	}
	return false, false, 0
}

// meant returns a function that reports whether the selector, affinity and tolerations of the node daemon
// allow it to run on a node.
func meant(daemon *unstructured.Unstructured) (func(*unstructured.Unstructured) bool, error) {
	template, _, err := unstructured.NestedMap(daemon.Object, "spec", "template", "spec")
	spec := corev1.PodSpec{}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(template, &spec)
	}
	if err != nil {
		return nil, fmt.Errorf("the template of %s: %w", installation.Of(daemon), err)
	}

	rules := nodes.ForDaemon(&spec)
	return func(object *unstructured.Unstructured) bool {
		node := corev1.Node{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &node); err != nil {
			return true
		}
		return rules.Judge(&node).Eligible
	}, nil
}

// tag returns the tag or digest of an image.
func tag(image string) string {
	if at := strings.LastIndexAny(image, ":@"); at > strings.LastIndex(image, "/") {
		return image[at+1:]
	}
	return "latest"
}

// settled is how long a new node may lack a daemon and a NodeImage, and a new claim a volume.
const settled = 5 * time.Minute

func (d *doctor) checkDaemons(ctx context.Context) error {
	const check = "node daemons"
	var err error
	if d.daemon, err = d.get(ctx, installation.DaemonSets, d.namespace, installation.Daemon); err != nil {
		return err
	}

	if d.daemon == nil {
		d.add(check, Problem, "",
			fmt.Sprintf(
				"there is no DaemonSet %s in namespace %s: nothing restarts containers or pulls images",
				installation.Daemon, d.namespace),
			"apply the manifests again; right if feature gate KruiseDaemon is off")
		return nil
	}

	image := installation.Text(container(d.daemon), "image")
	if d.manager != nil {
		if of := installation.Text(container(d.manager), "image"); tag(of) != tag(image) {
			d.add(check, Warning, installation.Of(d.daemon),
				fmt.Sprintf("image %s is of another release than the manager's %s", image, of),
				"apply the manifests of one release")
		}
	}

	pods, err := d.podsOf(ctx, d.daemon)
	if err != nil {
		return err
	}

	byNode := map[string]*unstructured.Unstructured{}
	for _, pod := range pods {
		byNode[installation.Text(pod.Object, "spec", "nodeName")] = pod
		d.checkContainers(check, pod, image)
	}

	images := map[string]*unstructured.Unstructured{}
	served := true
	if err := d.each(ctx, "NodeImage", func(object *unstructured.Unstructured) error {
		images[object.GetName()] = object.DeepCopy()
		return nil
	}); err != nil {
		served = false
		d.unreadable(check, err)
	}

	wanted, err := meant(d.daemon)
	if err != nil {
		return err
	}

	healthy, all, others := 0, 0, 0
	if err := installation.Each(ctx, d.client, schema.GroupVersionKind{Version: "v1", Kind: "Node"},
		func(node *unstructured.Unstructured) error {
			nodeImage := images[node.GetName()]
			delete(images, node.GetName())
			if byNode[node.GetName()] == nil && !wanted(node) {
				others++
				return nil
			}

			all++
			up, _, since := d.ready(node)
			labels := node.GetLabels()
			if !up || since < settled || labels["type"] == "virtual-kubelet" ||
				labels["kubernetes.io/os"] == "windows" {
				return nil
			}

			pod, of := byNode[node.GetName()], installation.Of(node)
			if pod == nil {
				d.add(check, Problem, of, "it has no node daemon",
					"kubectl -n "+d.namespace+" describe daemonset "+installation.Daemon)
			} else if ok, _, since := d.ready(pod); ok {
				healthy++
			} else if since >= settled {
				d.add(check, Problem, of, "the node daemon "+pod.GetName()+" is not ready",
					"kubectl -n "+d.namespace+" logs "+pod.GetName())
			}

			switch {
			case served && nodeImage == nil:
				d.add(check, Warning, of, "it has no NodeImage: no image is pulled ahead on it",
					"look at the manager's log")
			case nodeImage != nil:
				d.checkNodeImage(nodeImage)
			}

			return nil
		}); err != nil {
		return err
	}

	for _, name := range sorted(images) {
		d.add(check, Warning, "NodeImage "+name, "its node is gone",
			"the manager removes it: look at its log")
	}

	text := fmt.Sprintf("ready on %d of %s, image %s", healthy, wording.Count(all, "node"), image)
	if others > 0 {
		text += fmt.Sprintf("; %s not selected or not tolerated", wording.Count(others, "other"))
	}
	d.add(check, OK, installation.Of(d.daemon), text, "")
	return nil
}

// checkNodeImage checks whether the node daemon knows all tags.
func (d *doctor) checkNodeImage(object *unstructured.Unstructured) {
	var wanted int64
	var oldest time.Duration
	images, _, _ := unstructured.NestedMap(object.Object, "spec", "images")
	for _, image := range images {
		spec, _ := image.(map[string]any)
		for _, tag := range installation.Maps(spec, "tags") {
			wanted++
			oldest = max(oldest, d.age(installation.Text(tag, "createdAt")))
		}
	}

	status := func(field string) int64 { return number(object.Object, "status", field) }
	if known := status("succeeded") + status("failed") +
		status("pulling") + status("waiting"); known < wanted && oldest > settled {
		d.add("node daemons", Warning, installation.Of(object),
			fmt.Sprintf("the node daemon knows %d of %s, the first asked for %s ago", known,
				wording.Count(int(wanted), "tag"), ago(oldest)),
			"look at the log of the node daemon")
	}
}
