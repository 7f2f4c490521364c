package takeover

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/component-base/featuregate"

	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// into changes a workload of the manifests so that it does what the other one did. The manifests take
// precedence: base is the workload of this release's own manifests, and a difference from it is intended.
func (c *carried) into(workload, base *unstructured.Unstructured) error {
	if workload == nil {
		return nil
	}
	if base == nil {
		base = workload
	}

	containers, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		return fmt.Errorf("%s of the manifests has no containers", installation.Of(workload))
	}

	container, _ := containers[0].(map[string]any)
	c.intoContainer(container, mainContainer(base))
	if err := unstructured.SetNestedSlice(workload.Object, containers, "spec", "template", "spec",
		"containers"); err != nil {
		return fmt.Errorf("%s: %w", installation.Of(workload), err)
	}

	for field, value := range c.fields {
		path := []string{"spec", "template", "spec", field}
		has, _, _ := unstructured.NestedFieldNoCopy(workload.Object, path...)
		if was, _, _ := unstructured.NestedFieldNoCopy(base.Object,
			path...); !equality.Semantic.DeepEqual(has, was) {
			continue
		}
		if selector, ok := has.(map[string]any); ok && field == "nodeSelector" {
			value = merged(selector, value)
		}
		if err := unstructured.SetNestedField(workload.Object, value, path...); err != nil {
			return fmt.Errorf("%s: %w", installation.Of(workload), err)
		}
	}

	for field, values := range map[string]map[string]string{"labels": c.labels,
		"annotations": c.annotations} {
		for name, value := range values {
			path := []string{"spec", "template", "metadata", field, name}
			if _, has, _ := unstructured.NestedFieldNoCopy(workload.Object, path...); has {
				continue
			}
			if err := unstructured.SetNestedField(workload.Object, value, path...); err != nil {
				return fmt.Errorf("%s: %w", installation.Of(workload), err)
			}
		}
	}

	if replicas, has, _ := unstructured.NestedInt64(workload.Object, "spec", "replicas"); has &&
		c.replicas > 0 && c.replicas < replicas {
		// Each replica takes ports of its node, and there may be no other node for one more.
		if err := unstructured.SetNestedField(workload.Object, c.replicas, "spec", "replicas"); err != nil {
			return fmt.Errorf("%s: %w", installation.Of(workload), err)
		}
	}

	return c.intoVolumes(workload)
}

// merged returns the members of both maps; those of more take precedence.
func merged(base map[string]any, more any) map[string]any {
	all := maps.Clone(base)
	if members, ok := more.(map[string]any); ok {
		maps.Copy(all, members)
	}
	return all
}

// nameOf returns the name of the flag in an argument.
func nameOf(argument string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(argument, "-"), "=")
	return name
}

// intoContainer sets flags, variables, mounts and ports, except where the manifests differ from base.
func (c *carried) intoContainer(container, base map[string]any) {
	args, _ := container["args"].([]any)
	said, was := texts(container["args"]), texts(base["args"])
	meant := map[string]bool{}
	gates := ""
	for _, argument := range said {
		if name := nameOf(argument); name == "feature-gates" {
			gates += "," + strings.TrimPrefix(strings.TrimLeft(argument, "-"), "feature-gates=")
		} else if !slices.Contains(was, argument) {
			meant[name] = true
		}
	}

	gates = strings.Trim(gates, ",")
	for _, text := range c.Flags {
		switch list, isGates := strings.CutPrefix(text, "--feature-gates="); {
		case isGates:
			args = slices.DeleteFunc(args,
				func(argument any) bool { return nameOf(fmt.Sprint(argument)) == "feature-gates" })
			args = append(args, "--feature-gates="+mergeGates(list, gates))
		case !meant[nameOf(text)]:
			args = append(args, text)
		}
	}

	changed := func(at, flag string) {
		if port := c.ports[at]; port != 0 && !meant[flag] && hasPort(container, at) && flag != "" {
			args = slices.DeleteFunc(args,
				func(argument any) bool { return nameOf(fmt.Sprint(argument)) == flag })
			args = append(args, fmt.Sprintf("--%s=:%d", flag, port))
		}
	}

	if container["name"] == "daemon" {
		changed("health", "addr")
	} else {
		changed("health", "health-probe-addr")
		changed("metrics", "metrics-addr")
	}

	if len(args) > 0 {
		container["args"] = args
	}
	ports, _ := container["ports"].([]any)
	for _, item := range ports {
		if port, ok := item.(map[string]any); ok && c.ports[fmt.Sprint(port["name"])] != 0 &&
			slices.ContainsFunc(installation.Maps(base, "ports"), func(was map[string]any) bool {
				return was["name"] == port["name"] && was["containerPort"] == port["containerPort"]
			}) {
			port["containerPort"] = c.ports[fmt.Sprint(port["name"])]
		}
	}

	env, _ := container["env"].([]any)
	for _, item := range c.Env {
		variable, _ := item.(map[string]any)
		if !slices.ContainsFunc(installation.Maps(container, "env"),
			func(has map[string]any) bool { return has["name"] == variable["name"] }) {
			env = append(env, item)
		}
	}

	if len(env) > 0 {
		container["env"] = env
	}
	mounts, _ := container["volumeMounts"].([]any)
	for _, item := range c.mounts {
		mount, _ := item.(map[string]any)
		if !slices.ContainsFunc(installation.Maps(container, "volumeMounts"), func(has map[string]any) bool {
			return has["mountPath"] == mount["mountPath"]
		}) {
			mounts = append(mounts, item)
		}
	}

	if len(mounts) > 0 {
		container["volumeMounts"] = mounts
	}
}

func hasPort(container map[string]any, name string) bool {
	return slices.ContainsFunc(installation.Maps(container, "ports"),
		func(port map[string]any) bool { return port["name"] == name })
}

// mergeGates adds the carried gates to those of the manifests, unless the manifests name them or their stage.
func mergeGates(carried, manifests string) string {
	named, stages := map[string]bool{}, map[string]bool{}
	for item := range strings.SplitSeq(manifests, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(item), "=")
		named[name], stages[strings.ToUpper(strings.TrimPrefix(name, "All"))] = true,
			strings.HasPrefix(name, "All")
	}

	known, aliases := features.Known(), features.Aliases()
	list := []string{manifests}
	for item := range strings.SplitSeq(carried, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(item), "=")
		if gate, ok := aliases[name]; ok {
			name = string(gate)
		}
		if !named[name] && !stages[string(known[featuregate.Feature(name)].PreRelease)] {
			list = append(list, item)
		}
	}

	return strings.Trim(strings.Join(list, ","), ",")
}

// intoVolumes adds the volumes of the added mounts, and keeps the folder of the runtime sockets.
func (c *carried) intoVolumes(workload *unstructured.Unstructured) error {
	volumes, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "volumes")
	if err != nil {
		return fmt.Errorf("volumes of %s: %w", installation.Of(workload), err)
	}

	mounted := installation.Maps(mainContainer(workload), "volumeMounts")
	for i, item := range c.volumes {
		volume, _ := item.(map[string]any)
		path := c.mounts[i].(map[string]any)["mountPath"] //nolint:forcetypeassert // made by readVolumes
		for _, mount := range mounted {
			if mount["mountPath"] != path {
				continue
			}
			at := slices.IndexFunc(volumes,
				func(v any) bool { m, _ := v.(map[string]any); return m["name"] == mount["name"] })
			if at < 0 {
				volumes = append(volumes, volume)
			} else if has, _ := volumes[at].(map[string]any); path == sockets &&
				installation.Text(has, "hostPath", "path") == "/var/run" {
				has["hostPath"] = volume["hostPath"]
			}
			break
		}
	}

	if len(volumes) == 0 {
		return nil
	}

	return unstructured.SetNestedSlice(workload.Object, volumes, "spec", "template", "spec", "volumes") //nolint:wrapcheck // it is there
}

// carryInto makes the manager and the node daemons of the manifests do what those of the other installation
// did.
func (t *takeover) carryInto(s *seen, manifests []*unstructured.Unstructured) error {
	base := manifests
	if t.choice.Path != "" {
		var err error
		if base, err = installation.Manifests(
			installation.Choice{Namespace: t.choice.Namespace}); err != nil {
			return err
		}
	}

	into := func(c *carried, kind, name string) error {
		return c.into(installation.Find(manifests, kind, name), installation.Find(base, kind, name))
	}

	if err := errors.Join(into(&s.carriedManager, installation.Deployments.Kind, installation.Manager),
		into(&s.carriedDaemon, installation.DaemonSets.Kind, installation.Daemon)); err != nil {
		return err
	}

	service := installation.Find(manifests, "Service", installation.Service)
	if service == nil || s.carriedManager.ports["webhook"] == 0 {
		return nil
	}

	ports, _, err := unstructured.NestedSlice(service.Object, "spec", "ports")
	for _, item := range ports {
		if port, ok := item.(map[string]any); ok && port["targetPort"] == usualPorts["webhook"][0] {
			port["targetPort"] = s.carriedManager.ports["webhook"]
		}
	}

	return errors.Join(err, unstructured.SetNestedSlice(service.Object, ports, "spec", "ports"))
}

// foreseen returns the manager and the node daemons as they will be applied.
func (t *takeover) foreseen(s *seen) (manager, daemon *unstructured.Unstructured, err error) {
	var copies []*unstructured.Unstructured
	for _, object := range t.manifests {
		if slices.Contains([]string{installation.Deployments.Kind, installation.DaemonSets.Kind, "Service"},
			object.GetKind()) {
			copies = append(copies, object.DeepCopy())
		}
	}
	err = t.carryInto(s, copies)
	return installation.Find(copies, installation.Deployments.Kind, installation.Manager),
		installation.Find(copies, installation.DaemonSets.Kind, installation.Daemon), err
}

// turnsOn reports whether the flags of a manager turn a feature gate on.
func turnsOn(manager *unstructured.Unstructured, gate featuregate.Feature) bool {
	list := ""
	for _, text := range texts(mainContainer(manager)["args"]) {
		if is := strings.TrimLeft(text, "-"); nameOf(text) == "feature-gates" {
			list = strings.TrimPrefix(is, "feature-gates=")
		}
	}
	gates, err := features.Parse(list)
	return err == nil && gates.Enabled(gate)
}

// placed makes a pod run where the manager may run, with the image pull secrets of all workloads.
func placed(spec map[string]any, workloads ...*unstructured.Unstructured) {
	var secrets []any
	for i, workload := range slices.DeleteFunc(workloads,
		func(w *unstructured.Unstructured) bool { return w == nil }) {
		for _, field := range []string{"nodeSelector", "tolerations", "runtimeClassName"} {
			if value, has, _ := unstructured.NestedFieldCopy(workload.Object, "spec", "template", "spec",
				field); has && i == 0 {
				spec[field] = value
			}
		}
		more, _, _ := unstructured.NestedSlice(workload.Object, "spec", "template", "spec",
			"imagePullSecrets")
		for _, secret := range more {
			if !slices.ContainsFunc(secrets,
				func(has any) bool { return equality.Semantic.DeepEqual(has, secret) }) {
				secrets = append(secrets, secret)
			}
		}
	}

	if len(secrets) > 0 {
		spec["imagePullSecrets"] = secrets
	}
}
