package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/registry"
)

// webhookOptions returns the options of the webhooks, except those that depend on the API server and the caches. stopping is closed when
// the manager gets the signal to end.
func webhookOptions(o *options, gates *features.Gates, stopping <-chan struct{}) (admission.Options, error) {
	options := admission.Options{
		Kinds:               registry.Admitted(),
		OtherCRDs:           registry.Definitions,
		Gates:               gates,
		Namespace:           o.installNamespace,
		SecretName:          o.secretName,
		ServiceName:         o.serviceName,
		Host:                o.webhookHost,
		FilesOnly:           o.filesOnly(),
		External:            gates.Enabled(features.EnableExternalCerts),
		ForbidPrivileged:    !o.kinds.AllowPrivileged,
		Port:                o.webhookPort,
		CertDir:             o.certDir,
		Stopping:            stopping,
		InitTimeout:         o.webhookInitTimeout,
		ClientCAFile:        o.webhookClientCAFile,
		Pods:                gates.Enabled(features.PodWebhook),
		GateAllPods:         gates.Enabled(features.KruisePodReadinessGate),
		UnschedulableWindow: o.kinds.UnschedulableWindow,
		ProtectionLog:       o.protectionLog,
	}
	if o.renewBefore != "" {
		renewBefore, err := certificate.ParseRenewBefore(o.renewBefore)
		if err != nil {
			return options, fmt.Errorf("CERTS_RENEW_BEFORE: %w", err)
		}
		options.RenewBefore = renewBefore
	}
	return options, nil
}

// serverMinor returns the minor version of Kubernetes 1. It is 0, which is older than every feature, if the server's version cannot be
// parsed (OPS-033).
func serverMinor(ctx context.Context, cfg *rest.Config) (uint, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return 0, fmt.Errorf("discovery: %w", err)
	}
	text, err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("asking for the version of the server: %w", err)
	}
	var info apimachineryversion.Info
	if err := json.Unmarshal(text, &info); err == nil {
		if parsed, err := version.ParseGeneric(info.GitVersion); err == nil && parsed.Major() == 1 {
			return parsed.Minor(), nil
		}
		if minor, err := strconv.ParseUint(strings.TrimRight(info.Minor, "+"), 10, 16); err == nil && info.Major == "1" {
			return uint(minor), nil
		}
	}
	ctrl.Log.Info("The version of the server cannot be read: features of newer ones are not used", "version", string(text))
	return 0, nil
}
