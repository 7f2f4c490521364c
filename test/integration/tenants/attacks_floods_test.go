//go:build integration

package tenants

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// floodAttacks are about how fast requests come. They go on until they have been measured.
var floodAttacks = []attack{
	{name: "edits", least: 50, run: edits,
		does: "16 loops that change templates and replicas of 16 CloneSets with 3 pods as fast as the API server answers"},
	{name: "labels", least: 50, run: labels,
		does: "16 loops that move 50 pods out of the selector of their CloneSet and back"},
	{name: "births", least: 50, run: births,
		does: "16 loops that create and delete objects of each kind"},
	{name: "dry-runs", least: 50, run: dryRuns,
		does: "64 loops of dry runs of small objects of each kind"},
	{name: "large-dry-runs", least: 0, run: largeDryRuns,
		does: "32 loops of dry runs of CloneSets with 1.4 MB of variables, or 19,000 items"},
	{name: "accounts", least: 50, run: accounts,
		does: "256 loops of dry runs of small CloneSets by 256 service accounts, among which the API server divides what service accounts may have"},
	{name: "conversions", least: 10, run: conversions,
		does: "8 loops that list 12 CloneSets of 1.3 MB each in the older version, so that each is converted"},
	{name: "port", least: 0, run: port,
		does: "requests to the port of the webhooks without the API server: forged reviews in the name of the other tenant, bodies of 7 and 32 MB, bodies that never end, and 500 connections"},
}

func edits(ctx context.Context, m *tenant) error {
	sets := make([]*unstructured.Unstructured, 16)
	each(ctx, len(sets), 8, func(i int) { sets[i] = m.make(ctx, workload("CloneSet", m.namespace, fmt.Sprintf("edited-%d", i), 3)) })
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the time of the attack is over
	}
	m.again(ctx, len(sets), func(loop, i int) {
		m.patches(ctx, sets[loop], fmt.Sprintf(`{"spec":{"replicas":%d,"template":{"metadata":{"annotations":{"example.com/edit":"%d"}}}}}`, 2+i%2, i))
	})
	return nil
}

func labels(ctx context.Context, m *tenant) error {
	m.make(ctx, workload("CloneSet", m.namespace, "moved", 50))
	if err := m.hasPods(ctx, 50); err != nil {
		return err
	}
	pods := m.pods(ctx)
	m.again(ctx, 16, func(loop, i int) {
		m.patches(ctx, &pods[(i*16+loop)%len(pods)], fmt.Sprintf(`{"metadata":{"labels":{"app":%q}}}`, []string{"moved", "away"}[i%2]))
	})
	return nil
}

func births(ctx context.Context, m *tenant) error {
	names := slices.Sorted(maps.Keys(kinds))
	m.again(ctx, 16, func(loop, i int) {
		o := m.make(ctx, of(names[(loop+i)%len(names)], fmt.Sprintf("born-%d-%d", loop, i)))
		_ = m.Delete(ctx, o)
	})
	return nil
}

func dryRuns(ctx context.Context, m *tenant) error {
	names := slices.Sorted(maps.Keys(kinds))
	m.again(ctx, 64, func(loop, i int) {
		m.make(ctx, of(names[(loop+i)%len(names)], "tried"), client.DryRunAll)
	})
	return nil
}

// large returns a CloneSet of nearly the size, or nearly the number of items, that is possible.
func large(namespace string, i int) *unstructured.Unstructured {
	if i%2 == 0 {
		return workload("CloneSet", namespace, "large", 0, environment(19_000))
	}
	return workload("CloneSet", namespace, "large", 0, func(o *unstructured.Unstructured) {
		c := container(o)
		list := make([]any, 4000)
		for i := range list {
			list[i] = map[string]any{"name": fmt.Sprintf("E%d", i), "value": strings.Repeat("v", 300)}
		}
		c["env"] = list
		with(o, "spec.template.spec.containers", []any{c})
	})
}

func largeDryRuns(ctx context.Context, m *tenant) error {
	objects := []*unstructured.Unstructured{large(m.namespace, 0), large(m.namespace, 1)}
	m.again(ctx, 32, func(loop, i int) { m.make(ctx, objects[(loop+i)%2].DeepCopy(), client.DryRunAll) })
	return nil
}

// accounts acts in the names of service accounts, as pods of the namespace could. The API server does not ask whether they
// exist.
func accounts(ctx context.Context, m *tenant) error {
	clients := make([]*http.Client, 256)
	for i := range clients {
		config := rest.CopyConfig(m.config)
		config.Impersonate.UserName = fmt.Sprintf("system:serviceaccount:%s:account-%d", m.namespace, i)
		var err error
		if clients[i], err = rest.HTTPClientFor(config); err != nil {
			return err
		}
	}
	body := must(workload("CloneSet", m.namespace, "tried", 0).MarshalJSON())
	m.again(ctx, len(clients), func(loop, _ int) { m.postsBy(ctx, clients[loop], "clonesets?dryRun=All", body) })
	return nil
}

func conversions(ctx context.Context, m *tenant) error {
	each(ctx, 12, 4, func(i int) {
		o := large(m.namespace, 1)
		o.SetName(fmt.Sprintf("converted-%d", i))
		m.make(ctx, o)
	})
	m.again(ctx, 8, func(int, int) {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("apps.kruise.io/v1alpha1")
		list.SetKind("CloneSetList")
		_ = m.List(ctx, list, client.InNamespace(m.namespace))
	})
	return nil
}

// port sends requests like a program in a pod that reaches the port. It has an address of its own.
func port(ctx context.Context, m *tenant) error {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: 5 * time.Second}
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as an attacker does
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: config, MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	post := func(path string, body io.Reader) int {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+m.w.manager.webhooks+path, body)
		if err != nil {
			return 0
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(request)
		if err != nil {
			return 0
		}
		defer func() { _ = response.Body.Close() }()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	review := func(namespace, kind, plural, given string) string {
		return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","namespace":%q,"name":"x",
			"kind":{"group":"apps.kruise.io","version":"v1beta1","kind":%q},"resource":{"group":"apps.kruise.io","version":"v1beta1","resource":%q},"object":%s}}`, namespace, kind, plural, given)
	}
	raw, err := large(peacefulNamespace, 1).MarshalJSON()
	if err != nil {
		return err
	}
	forged := review(peacefulNamespace, "CloneSet", "clonesets", string(raw))
	pods := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"DELETE","namespace":%q,"name":%q,"kind":{"version":"v1","kind":"Pod"},
		"resource":{"version":"v1","resource":"pods"},"oldObject":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":%q,"labels":{"app":"small"}}}}}`, peacefulNamespace, "x", peacefulNamespace)
	spread := review(peacefulNamespace, "WorkloadSpread", "workloadspreads", string(must(of("WorkloadSpread", small).MarshalJSON())))
	answered := 0
	for _, path := range []string{"/convert", "/validate-pod", "/mutate-pod"} {
		if post(path, strings.NewReader("{}")) != 0 {
			answered++
		}
	}
	if answered == 0 && ctx.Err() == nil {
		return errors.New("the port answers nothing")
	}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for range 500 { // connections that say nothing
		if c, err := dialer.DialContext(ctx, "tcp", m.w.manager.webhooks); err == nil {
			held = append(held, c)
		}
	}
	seven, thirty := bytes.Repeat([]byte("["), 7<<20), append([]byte(`{"request":{"objects":"`), bytes.Repeat([]byte("x"), 32<<20)...)
	m.again(ctx, 24, func(loop, i int) {
		switch loop % 6 {
		case 0, 1:
			post("/mutate-apps-kruise-io-cloneset", strings.NewReader(forged))
		case 2:
			post("/validate-pod", strings.NewReader(pods))
			post("/validate-apps-kruise-io-workloadspread", strings.NewReader(spread))
		case 3:
			post("/mutate-pod-all", bytes.NewReader(seven))
		case 4:
			post("/convert", bytes.NewReader(thirty))
		case 5: // a body that never ends
			slow, send := io.Pipe()
			go func() {
				defer func() { _ = send.Close() }()
				_, _ = send.Write(seven[:3<<20])
				<-ctx.Done()
			}()
			post("/validate-apps-kruise-io-cloneset", slow)
			_ = slow.Close()
		}
	})
	return nil
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return raw
}
