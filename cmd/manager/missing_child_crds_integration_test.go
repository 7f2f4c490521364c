//go:build integration

package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	advancedcronjobcontroller "github.com/afloat-project/afloat/internal/kinds/advancedcronjob/controller"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// ACJ-122 (part): without the CRDs of BroadcastJobs and ImageListPullJobs schedules of Jobs run; those of
// BroadcastJobs do as soon as their CRD is there, whose objects are followed from then on.
func TestChildrenWhoseCRDComesLater(t *testing.T) {
	s, err := scheme()
	if err == nil {
		err = apiextensionsv1.AddToScheme(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	environment := &envtest.Environment{}
	cfg, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	kube, err := client.New(cfg, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(plural string) {
		t.Helper()
		text, err := os.ReadFile("../../config/crd/bases/apps.kruise.io_" + plural + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatal(err)
		}
		crd.Spec.Conversion = nil // no conversion webhook runs here
		if err := kube.Create(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	eventually := func(what string, check func(ctx context.Context) (bool, error)) {
		t.Helper()
		var last error
		if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (done bool, err error) {
			done, last = check(ctx)
			return done && last == nil, nil
		}); err != nil {
			t.Fatalf("%s: %v", what, errors.Join(err, last))
		}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := whenServed(t.Context(), mgr, 100*time.Millisecond, nil, func(ctx context.Context) error {
		return advancedcronjobcontroller.Setup(ctx, mgr, reconcile.Options{Workers: 1})
	}, appsv1beta1.GroupVersion.WithKind("AdvancedCronJob")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end of the manager: %v", err)
		}
	})
	<-mgr.Elected()
	serve("advancedcronjobs")
	const pods = `{template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}`
	for name, template := range map[string]string{"jobs": `{jobTemplate: {spec: ` + pods + `}}`, "broadcasts": `{broadcastJobTemplate: {spec: ` + pods + `}}`} {
		cronJob := &appsv1beta1.AdvancedCronJob{}
		if err := yaml.Unmarshal([]byte(`{metadata: {namespace: default, name: `+name+`}, spec: {schedule: "@every 1s", concurrencyPolicy: Forbid, template: `+template+`}}`), cronJob); err != nil {
			t.Fatal(err)
		}
		eventually(name, func(ctx context.Context) (bool, error) { return true, kube.Create(ctx, cronJob) })
	}
	eventually("a Job", func(ctx context.Context) (bool, error) {
		var jobs batchv1.JobList
		err := kube.List(ctx, &jobs)
		return len(jobs.Items) == 1, err
	})
	serve("broadcastjobs")
	broadcasts := &appsv1beta1.AdvancedCronJob{}
	eventually("a BroadcastJob", func(ctx context.Context) (bool, error) {
		err := kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: "broadcasts"}, broadcasts)
		return len(broadcasts.Status.Active) == 1, err
	})
	// Its end is seen at once, and the next one begins.
	first := broadcasts.Status.Active[0].Name
	job := &appsv1beta1.BroadcastJob{}
	job.Namespace, job.Name = "default", first
	if err := kube.Delete(ctx, job); err != nil {
		t.Fatal(err)
	}
	eventually("another one", func(ctx context.Context) (bool, error) {
		err := kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: "broadcasts"}, broadcasts)
		return len(broadcasts.Status.Active) == 1 && broadcasts.Status.Active[0].Name != first, err
	})
}
