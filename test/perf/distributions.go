package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// distributions are the ResourceDistributions of a bench, each of a ConfigMap to the same namespaces.
type distributions struct {
	*bench
	client dynamic.ResourceInterface
}

// wanted is a label of all namespaces that get copies.
const wanted = "perf-distributed"

func distributionName(i int) string { return fmt.Sprintf("settings-%d", i) }

func namespaceName(i int) string { return fmt.Sprintf("perf-%05d", i) }

// settings is what is distributed: data of the size of some settings.
func settings(colour string) map[string]string {
	return map[string]string{"colour": colour, "more": strings.Repeat("x", 300)}
}

// distributeTo10000 measures how quickly a changed ConfigMap reaches 10,000 namespaces, and what events of
// single namespaces cost when there are 20 distributions to all of them.
func distributeTo10000(ctx context.Context, b *bench) error {
	const n, count = 10000, 20
	d := &distributions{b, b.sets.client.Resource(schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1",
		Resource: "resourcedistributions"})}
	if err := d.namespaces(ctx, n); err != nil {
		return err
	}
	if err := d.bareCopies(ctx, n); err != nil {
		return err
	}
	if err := b.startManager(ctx); err != nil {
		return err
	}
	if _, err := b.memoryAtRest(ctx, "with 10,000 namespaces"); err != nil {
		return err
	}
	made, err := b.managerStep(ctx, stepCreate, n, func(ctx context.Context) (time.Time, time.Time, error) { return d.create(ctx, 0, 1, n) })
	if err != nil {
		return err
	}
	bare := b.report.find(stepCreate, true)
	b.report.atLeast("creation, part of the bare client's speed", 100*made.PodsPerSecond/bare.PodsPerSecond, 90, "%")
	b.report.atMost("creation, writes per copy", copyWrites(made), 1.1, "")
	if _, err := b.managerStep(ctx, "create 19 more", n*(count-1),
		func(ctx context.Context) (time.Time, time.Time, error) { return d.create(ctx, 1, count, n) }); err != nil {
		return err
	}
	if _, err := b.memoryAtRest(ctx, "with 200,000 copies"); err != nil {
		return err
	}
	changed, err := b.managerStep(ctx, stepChange, n, func(ctx context.Context) (time.Time, time.Time, error) { return d.change(ctx, n) })
	if err != nil {
		return err
	}
	bare = b.report.find(stepChange, true)
	b.report.atLeast("change, part of the bare client's speed", 100*changed.PodsPerSecond/bare.PodsPerSecond, 90, "%")
	b.report.atMost("change, writes per copy", copyWrites(changed), 1.1, "")
	return d.events(ctx, n, count)
}

// stepChange is a change of what is distributed.
const stepChange = "change"

// copyWrites is how many writes there were for each copy.
func copyWrites(p *phase) float64 {
	writes := 0
	for what, times := range p.Writes {
		if strings.HasSuffix(what, " configmaps") {
			writes += times
		}
	}
	return float64(writes) / float64(p.Pods)
}

// namespaces makes n namespaces, and waits until the cluster has done with them.
func (d *distributions) namespaces(ctx context.Context, n int) error {
	slots := make(chan struct{}, bareParallel)
	if err := each(n, func(i int) error {
		slots <- struct{}{}
		defer func() { <-slots }()
		_, err := d.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(i),
			Labels: map[string]string{wanted: "yes"}}}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	return poll(ctx, "the cluster's own ConfigMaps and service accounts", time.Second, func(ctx context.Context) (bool, error) {
		for _, count := range []func() (int, error){
			func() (int, error) {
				all, err := d.kube.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=kube-root-ca.crt"})
				return len(all.Items), err
			},
			func() (int, error) {
				all, err := d.kube.CoreV1().ServiceAccounts("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=default"})
				return len(all.Items), err
			},
		} {
			if found, err := count(); err != nil || found < n {
				return false, err
			}
		}
		return true, nil
	})
}

// bareCopies measures the bare client: creation, change and deletion of copies. They have the owner and the
// annotations of the wire.
func (d *distributions) bareCopies(ctx context.Context, n int) error {
	yes := true
	copyOf := func(colour string) *corev1.ConfigMap {
		hash := strings.Repeat("0123456789abcdef", 4)
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bare",
			Annotations: map[string]string{"kruise.io/resourcedistribution.resource.from": "bare",
				"kruise.io/resourcedistribution.resource.hashcode": colour + hash[len(colour):]},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ours, UID: d.uid(ctx), Controller: &yes,
				BlockOwnerDeletion: &yes}}}, Data: settings(colour)}
	}
	first, second := copyOf("blue"), copyOf("green")
	versions := make([]string, n)
	for _, step := range []struct {
		name string
		do   func(i int) error
	}{
		{stepCreate, func(i int) error {
			made, err := d.bare.CoreV1().ConfigMaps(namespaceName(i)).Create(ctx, first, metav1.CreateOptions{})
			if err == nil {
				versions[i] = made.ResourceVersion
			}
			return err
		}},
		{stepChange, func(i int) error {
			next := second.DeepCopy()
			next.ResourceVersion = versions[i]
			_, err := d.bare.CoreV1().ConfigMaps(namespaceName(i)).Update(ctx, next, metav1.UpdateOptions{})
			return err
		}},
		{stepDelete, func(i int) error {
			return d.bare.CoreV1().ConfigMaps(namespaceName(i)).Delete(ctx, "bare", metav1.DeleteOptions{})
		}},
	} {
		slots := make(chan struct{}, bareParallel)
		if _, err := d.bareStep(ctx, step.name, n, func(context.Context) (time.Time, time.Time, error) {
			begin := time.Now()
			err := each(n, func(i int) error {
				slots <- struct{}{}
				defer func() { <-slots }()
				return step.do(i)
			})
			return begin, time.Now(), err
		}); err != nil {
			return err
		}
	}
	return nil
}

// uid is that of a namespace that lives on, or the garbage collector would delete the copies of the bare
// client.
func (d *distributions) uid(ctx context.Context) types.UID {
	namespace, err := d.kube.CoreV1().Namespaces().Get(ctx, ours, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return namespace.UID
}

// create makes the distributions of these numbers and waits until they say that they reached n namespaces.
func (d *distributions) create(ctx context.Context, from, to, n int) (begin, end time.Time, err error) {
	begin = time.Now()
	for i := from; i < to; i++ {
		data := map[string]any{}
		for key, value := range settings("blue") {
			data[key] = value
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "ResourceDistribution",
			"metadata": map[string]any{"name": distributionName(i)},
			"spec": map[string]any{"resource": map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": map[string]any{"name": distributionName(i)}, "data": data},
				"targets": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{wanted: "yes"}}}}}}
		if _, err := d.client.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return begin, end, err
		}
	}
	for i := from; i < to; i++ {
		if err := d.reached(ctx, i, n, 1); err != nil {
			return begin, end, err
		}
	}
	return begin, time.Now(), nil
}

// reached waits until a distribution says that it reached n namespaces with the content of a generation.
func (d *distributions) reached(ctx context.Context, i, n int, generation int64) error {
	return poll(ctx, distributionName(i)+" reaches its namespaces", 100*time.Millisecond, func(ctx context.Context) (bool, error) {
		found, err := d.client.Get(ctx, distributionName(i), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		succeeded, _, _ := unstructured.NestedInt64(found.Object, "status", "succeeded")
		observed, _, _ := unstructured.NestedInt64(found.Object, "status", "observedGeneration")
		return observed >= generation && succeeded == int64(n), nil
	})
}

// change changes what the first distribution holds.
func (d *distributions) change(ctx context.Context, n int) (begin, end time.Time, err error) {
	begin = time.Now()
	_, err = d.client.Patch(ctx, distributionName(0), types.MergePatchType, []byte(`{"spec":{"resource":{"data":{"colour":"green"}}}}`),
		metav1.PatchOptions{})
	if err != nil {
		return begin, end, err
	}
	// What is counted is what the namespaces have, not what the status says: it may be written later.
	if err := poll(ctx, "the change reaches all namespaces", 500*time.Millisecond, func(ctx context.Context) (bool, error) {
		page, err := d.kube.CoreV1().ConfigMaps(namespaceName(n-1)).Get(ctx, distributionName(0), metav1.GetOptions{})
		if err != nil || page.Data["colour"] != "green" {
			return false, err
		}
		return true, nil
	}); err != nil {
		return begin, end, err
	}
	err = d.reached(ctx, 0, n, 2)
	return begin, time.Now(), err
}

// events changes a label of a thousand namespaces that no distribution looks at, and adds a hundred
// namespaces.
func (d *distributions) events(ctx context.Context, n, count int) error {
	const labelled, added = 1000, 100
	p, err := d.managerStep(ctx, "one label of 1,000 namespaces", labelled, func(ctx context.Context) (time.Time, time.Time, error) {
		begin := time.Now()
		err := each(labelled, func(i int) error {
			_, err := d.kube.CoreV1().Namespaces().Patch(ctx, namespaceName(i), types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"perf":"other"}}}`), metav1.PatchOptions{})
			return err
		})
		return begin, time.Now(), err
	})
	if err != nil {
		return err
	}
	writes := 0
	for _, times := range p.Writes {
		writes += times
	}
	d.report.atMost("writes for a label of a namespace", float64(writes)/labelled, 0, "")
	d.report.atMost("manager CPU for a label of a namespace", 1000*p.CPU/labelled, 1, "ms")
	p, err = d.managerStep(ctx, "100 more namespaces", added*count, func(ctx context.Context) (begin, end time.Time, err error) {
		begin = time.Now()
		if err := each(added, func(i int) error {
			_, err := d.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(n + i),
				Labels: map[string]string{wanted: "yes"}}}, metav1.CreateOptions{})
			return err
		}); err != nil {
			return begin, end, err
		}
		for i := range count {
			if err := d.reached(ctx, i, n+added, 1); err != nil {
				return begin, end, err
			}
		}
		return begin, time.Now(), nil
	})
	if err != nil {
		return err
	}
	d.report.atMost("new namespaces, writes per copy", copyWrites(p), 1.1, "")
	d.report.figure("new namespaces, manager CPU per copy", p.CPUPerPod, "ms")
	return nil
}
