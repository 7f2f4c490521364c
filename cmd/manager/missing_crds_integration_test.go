//go:build integration

package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	containerrecreatecontroller "github.com/afloat-project/afloat/internal/kinds/containerrecreate/controller"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// CRR-055, CRR-059: on a real API server, objects of a CRD that is applied after the manager has started are
// reconciled without a restart.
func TestACRDThatComesLater(t *testing.T) {
	s, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(s); err != nil {
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
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: s, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	err = whenServed(t.Context(), mgr, 100*time.Millisecond, nil, func(ctx context.Context) error {
		return containerrecreatecontroller.Setup(ctx, mgr, reconcile.Options{Workers: 1})
	}, appsv1beta1.GroupVersion.WithKind("ContainerRecreateRequest"))
	if err != nil {
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

	text, err := os.ReadFile("../../config/crd/bases/apps.kruise.io_containerrecreaterequests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	crd.Spec.Conversion = nil // no conversion webhook runs here
	if err := kube.Create(ctx, crd); err != nil {
		t.Fatal(err)
	}
	request := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late",
		Labels: map[string]string{pub.RecreatePodUID: "u", pub.RecreateActive: "true"}},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "gone",
			Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app"}}}}
	created := false
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		if !created {
			last = kube.Create(ctx, request)
			created = last == nil
			return false, nil
		}
		last = kube.Get(ctx, client.ObjectKeyFromObject(request), request)
		return last == nil && request.Status.CompletionTime != nil && request.Labels[pub.RecreateActive] == "", nil
	})
	if err != nil {
		t.Errorf("the request is not completed: %v", errors.Join(err, last))
	}
	if request.Status.Message != "pod has gone" {
		t.Errorf("status of the request: got %+v, want that the pod has gone", request.Status)
	}
}
