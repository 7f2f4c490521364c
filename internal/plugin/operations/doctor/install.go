package doctor

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// oldest is the oldest minor version of the API server that the manifests support.
const oldest = 30

func (d *doctor) checkServer(context.Context) error {
	info, err := d.server()
	if err != nil {
		return err //nolint:wrapcheck // it says what was asked
	}
	minor, err := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
	if info.Major == "1" && err == nil && minor < oldest {
		d.add("API server", Problem, "", "Kubernetes "+info.GitVersion+" is older than 1.30",
			"upgrade the cluster: match conditions and admission policies are missing")
		return nil
	}
	d.add("API server", OK, "", "Kubernetes "+info.GitVersion, "")
	return nil
}

func number(object map[string]any, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(object, path...)
	return n
}

// container returns the first container of the manager or the daemon.
func container(workload *unstructured.Unstructured) map[string]any {
	for _, c := range installation.Maps(workload.Object, "spec", "template", "spec", "containers") {
		return c
	}
	return nil
}

// podsOf returns the pods that a workload selects.
func (d *doctor) podsOf(ctx context.Context,
	workload *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	matched, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	var pods []*unstructured.Unstructured
	err := installation.Each(ctx, d.client, installation.Pods, func(pod *unstructured.Unstructured) error {
		pods = append(pods, pod.DeepCopy())
		return nil
	}, client.InNamespace(workload.GetNamespace()),
		client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(matched)})
	return pods, err
}

func (d *doctor) checkManager(ctx context.Context) error {
	const check = "manager"
	var err error
	if d.manager, err = d.get(ctx, installation.Deployments, d.namespace, installation.Manager); err != nil {
		return err
	}

	if d.manager == nil {
		d.add(check, Problem, "",
			fmt.Sprintf("there is no Deployment %s in namespace %s", installation.Manager, d.namespace),
			"install it, or say with --manager-namespace where it is")
		return nil
	}

	of, image := installation.Of(d.manager), installation.Text(container(d.manager), "image")
	if !installation.IsOurs(d.manager) {
		d.add(check, Warning, of, "image "+image+" does not say that it is Afloat's",
			"kubectl afloat takeover puts Afloat in the place of OpenKruise; of other "+
				"manifests, add the label "+installation.PartOf+"="+installation.Project)
	}

	wanted, ready := number(d.manager.Object, "spec", "replicas"),
		number(d.manager.Object, "status", "readyReplicas")
	switch {
	case ready == 0:
		d.add(check, Problem, of,
			fmt.Sprintf("no replica of %d is ready: webhooks refuse, and no rollout moves", wanted),
			"kubectl -n "+d.namespace+
				" describe pods -l control-plane=controller-manager; /readyz/webhook-ready and the log say what is missing")
	case ready < wanted:
		d.add(check, Warning, of, fmt.Sprintf("%d of %d replicas are ready", ready, wanted),
			"kubectl -n "+d.namespace+" describe pods -l control-plane=controller-manager")
	default:
		d.add(check, OK, of, fmt.Sprintf("%d of %d replicas are ready, image %s", ready, wanted, image), "")
	}
	pods, err := d.podsOf(ctx, d.manager)
	if err != nil {
		return err
	}

	for _, pod := range pods {
		d.checkContainers(check, pod, image)
	}

	return nil
}

// checkContainers checks the containers of a pod of the installation: their image, why they wait, and when
// and why they last terminated.
func (d *doctor) checkContainers(check string, pod *unstructured.Unstructured, image string) {
	of := installation.Of(pod)
	if containers := installation.Maps(pod.Object, "spec", "containers"); len(containers) > 0 {
		if is := installation.Text(containers[0], "image"); is != image && pod.GetDeletionTimestamp() == nil {
			d.add(check, Warning, of, "image "+is+" is another one than that of its template, "+image,
				"a rolling update is under way, or stands still")
		}
	}

	for _, status := range installation.Maps(pod.Object, "status", "containerStatuses") {
		if reason := installation.Text(status, "state", "waiting", "reason"); reason != "" &&
			reason != "ContainerCreating" {
			d.add(check, Warning, of,
				strings.TrimSpace(reason+" "+installation.Text(status, "state", "waiting", "message")),
				"kubectl -n "+pod.GetNamespace()+" describe pod "+pod.GetName())
		}
		ended := installation.Text(status, "lastState", "terminated", "finishedAt")
		if since := d.age(ended); ended != "" && since < 24*time.Hour {
			d.add(check, Warning, of,
				fmt.Sprintf("restarted %d times, last %s ago: %s, exit code %d",
					number(status, "restartCount"), ago(since),
					installation.Text(status, "lastState", "terminated", "reason"),
					number(status, "lastState", "terminated", "exitCode")),
				"kubectl -n "+pod.GetNamespace()+" logs --previous "+pod.GetName())
		}
	}
}

// lateness is how far the clock of this machine may differ from that of the cluster.
const lateness = 15 * time.Second

func (d *doctor) checkLeader(ctx context.Context) error {
	const check = "leader"
	lease, err := d.get(ctx, installation.Leases, d.namespace, installation.Lock)
	if err != nil {
		return err
	}

	if lease == nil {
		d.add(check, Warning, "",
			fmt.Sprintf(
				"there is no Lease %s in namespace %s: no manager has led yet, or it uses another lock",
				installation.Lock, d.namespace),
			"")
		return nil
	}

	holder, renewed := installation.Text(lease.Object, "spec", "holderIdentity"),
		installation.Text(lease.Object, "spec", "renewTime")
	held := time.Duration(number(lease.Object, "spec", "leaseDurationSeconds")) * time.Second
	switch since := d.age(renewed); {
	case holder == "":
		d.add(check, Problem, installation.Of(lease), "nobody leads: no rollout moves",
			"look at the replicas of the manager")
	case since > held+lateness:
		d.add(check, Problem, installation.Of(lease),
			fmt.Sprintf("%s holds it and last renewed it %s ago: no rollout moves", holder, ago(since)),
			"look at the replicas of the manager")
	default:
		pod, _, _ := strings.Cut(holder, "_")
		found, err := d.get(ctx, installation.Pods, d.namespace, pod)
		if err != nil {
			return err
		}
		if found == nil {
			d.add(check, Warning, installation.Of(lease),
				holder+" holds it, which is no pod in namespace "+d.namespace,
				"a manager runs outside: find it, and end it if it is not meant to act")
			return nil
		}
		d.leader = pod
		d.led, _ = time.Parse(time.RFC3339, installation.Text(lease.Object, "spec", "acquireTime"))
		if ready, known, of := d.ready(found); known && !ready && of > time.Minute {
			d.add(check, Problem, installation.Of(found),
				fmt.Sprintf(
					"it leads, and is not ready for %s: its controllers may not run, and no rollout moves",
					ago(of)),
				d.leaderAdvice())
			return nil
		}
		d.add(check, OK, installation.Of(lease),
			fmt.Sprintf("%s leads, and renewed %s ago", pod, ago(max(since, 0))), "")
	}

	return nil
}

func (d *doctor) checkCertificates(ctx context.Context) error {
	const check = "certificates"
	secret, err := d.get(ctx, installation.Secrets, d.namespace, installation.Secret)
	if err != nil {
		d.unreadable(check, err)
		return d.checkBundles(ctx)
	}

	if secret == nil {
		d.add(check, Problem, "",
			fmt.Sprintf("there is no Secret %s in namespace %s", installation.Secret, d.namespace),
			"the manager makes it: look at its log")
		return d.checkBundles(ctx)
	}

	data := func(keys ...string) []byte {
		for _, key := range keys {
			if text := installation.Text(secret.Object, "data", key); text != "" {
				raw, _ := base64.StdEncoding.DecodeString(text)
				return raw
			}
		}
		return nil
	}

	d.authority = data("ca-cert.pem", "ca.crt")
	for what, certificate := range map[string][]byte{"authority": d.authority,
		"certificate": data("cert.pem", "tls.crt")} {
		d.expiry(check, installation.Of(secret), what, certificate)
	}

	slices.SortFunc(d.report.Findings[len(d.report.Findings)-2:],
		func(a, b Finding) int { return strings.Compare(a.Message, b.Message) })
	return d.checkBundles(ctx)
}

// expiry reports until when a certificate is valid.
func (d *doctor) expiry(check, object, what string, text []byte) {
	block, _ := pem.Decode(text)
	if block == nil {
		d.add(check, Problem, object, "the "+what+" cannot be read",
			"delete its keys: the manager fills them in")
		return
	}

	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		d.add(check, Problem, object, "the "+what+" cannot be read: "+err.Error(),
			"delete its keys: the manager fills them in")
		return
	}

	left := certificate.NotAfter.Sub(d.now)
	switch until := certificate.NotAfter.UTC().Format(time.DateOnly); {
	case left <= 0:
		d.add(check, Problem, object, "the "+what+" was good until "+until,
			"the manager, or who makes the certificates, renews it: look at its log")
	case left < 30*24*time.Hour:
		d.add(check, Warning, object, "the "+what+" is good until "+until,
			"it should have been renewed before: look at the manager's log")
	default:
		d.add(check, OK, object, "the "+what+" is good until "+until, "")
	}
}

// configurations calls do with each live webhook configuration and its manifest.
func (d *doctor) configurations(ctx context.Context,
	do func(live, wanted *unstructured.Unstructured) error) error {
	for _, c := range []struct {
		kind schema.GroupVersionKind
		name string
	}{{installation.MutatingKind, installation.Mutating},
		{installation.ValidatingKind, installation.Validating}} {
		live, err := d.get(ctx, c.kind, "", c.name)
		if err != nil {
			return err
		}
		if live == nil { // reported by checkWebhooks
			continue
		}
		if err := do(live, installation.Find(d.manifests, c.kind.Kind, c.name)); err != nil {
			return err
		}
	}

	return nil
}

// checkBundles checks whether callers trust the serving certificate.
func (d *doctor) checkBundles(ctx context.Context) error {
	const check = "certificates"
	trusts := func(object, what, bundle string) {
		raw, _ := base64.StdEncoding.DecodeString(bundle)
		switch {
		case len(raw) == 0:
			d.add(check, Problem, object, what+" has no authority: calls fail",
				"the manager fills it in: if it stays so, somebody puts it back, see fields of others")
		case len(d.authority) > 0 && !bytes.Contains(raw, bytes.TrimSpace(d.authority)):
			d.add(check, Problem, object, what+" has another authority than the Secret: calls fail",
				"the manager sets it right: if it stays so, look at its log")
		}
	}

	if err := d.configurations(ctx, func(live, _ *unstructured.Unstructured) error {
		for _, entry := range installation.Entries(live) {
			trusts(installation.Of(live), "entry "+installation.Text(entry, "name"),
				installation.Text(entry, "clientConfig", "caBundle"))
		}
		return nil
	}); err != nil {
		return err
	}

	return d.definitions(ctx, func(live *unstructured.Unstructured) {
		if installation.Text(live.Object, "spec", "conversion", "strategy") == "Webhook" {
			trusts(installation.Of(live), "its conversion",
				installation.Text(live.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle"))
		}
	})
}

// definitions calls do with each definition in the API groups of the project.
func (d *doctor) definitions(ctx context.Context, do func(*unstructured.Unstructured)) error {
	return installation.Each(ctx, d.client, installation.Definitions,
		func(definition *unstructured.Unstructured) error {
			if installation.OfProject(definition) {
				do(definition)
			}
			return nil
		})
}

func (d *doctor) checkWebhooks(ctx context.Context) error {
	const check = "webhooks"
	total, missing := 0, map[string]string{installation.Mutating: installation.MutatingKind.Kind,
		installation.Validating: installation.ValidatingKind.Kind}
	if err := d.configurations(ctx, func(live, wanted *unstructured.Unstructured) error {
		delete(missing, live.GetName())
		policies, paths := map[string]string{}, map[string]bool{}
		for _, entry := range installation.Entries(wanted) {
			policies[installation.Text(entry, "name")] = installation.Text(entry, "failurePolicy")
			paths[installation.Text(entry, "clientConfig", "service", "path")] = true
		}

		for _, entry := range installation.Entries(live) {
			total++
			name, policy := installation.Text(entry, "name"), installation.Text(entry, "failurePolicy")
			shipped, known := policies[name]
			delete(policies, name)
			switch {
			case !known && !slices.Contains(installation.DerivedEntries, name) &&
				!paths[installation.Text(entry, "clientConfig", "service", "path")]:
				d.add(check, Problem, installation.Of(live),
					"nobody serves entry "+name+
						": what it is about is refused, and new replicas do not become ready",
					"remove the entry, if its kind is not in use; see Over OpenKruise in the manual of installing")
			// The manager itself sets the policy of these two entries.
			case known && policy != shipped && name != "vpod.kb.io" && name != "vpodeviction.kb.io":
				d.add(check, Warning, installation.Of(live),
					fmt.Sprintf("entry %s has failurePolicy %s, and the manifests say %s", name, policy,
						shipped),
					"apply the manifests again")
			}
		}

		for _, name := range sorted(policies) {
			d.add(check, Warning, installation.Of(live), "entry "+name+" of the manifests is not there",
				"right if its feature gate is off; otherwise apply the manifests again")
		}

		return nil
	}); err != nil {
		return err
	}

	for _, name := range sorted(missing) {
		d.add(check, Problem, missing[name]+" "+name,
			"it is not there: nothing is checked, given defaults or injected", "apply the manifests again")
	}

	ready, err := d.endpoints(ctx)
	switch {
	case err != nil:
		return err
	case ready == 0:
		d.add(check, Problem, "Service "+d.namespace+"/"+installation.Service,
			"it has no ready endpoint: all that webhooks are asked about is refused",
			"look at the replicas of the manager")
	default:
		d.add(check, OK, "Service "+d.namespace+"/"+installation.Service,
			fmt.Sprintf("%d entries, %d ready endpoints", total, ready), "")
	}

	return nil
}

// endpoints counts the ready endpoints of the Service.
func (d *doctor) endpoints(ctx context.Context) (int, error) {
	ready := 0
	err := installation.Each(ctx, d.client,
		schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"},
		func(slice *unstructured.Unstructured) error {
			for _, endpoint := range installation.Maps(slice.Object, "endpoints") {
				if is, _, _ := unstructured.NestedBool(endpoint, "conditions", "ready"); is {
					ready++
				}
			}
			return nil
		}, client.InNamespace(d.namespace),
		client.MatchingLabels{"kubernetes.io/service-name": installation.Service})
	return ready, err
}
