// A Kubernetes control plane for tests, in one binary.
//
//	controlplane apiserver FLAGS…    the real kube-apiserver, with its own flags
//	controlplane controllers FILE    the real controllers, with this kubeconfig
//
// The controllers are those that a rollout needs. They are made as kube-controller-manager makes
// them, on shared informers. There is no scheduler, and no controller of nodes, endpoints or
// volumes: whoever uses the cluster binds the pods to nodes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	"k8s.io/controller-manager/pkg/informerfactory"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"
)

const (
	workers = 5
	// As kube-controller-manager's defaults.
	burstReplicas = 500
	namespaceSync = 5 * time.Minute
	gcSync        = 30 * time.Second
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "apiserver" {
		os.Args = append([]string{"kube-apiserver"}, os.Args[2:]...)
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	}
	if len(os.Args) != 3 || os.Args[1] != "controllers" {
		fmt.Fprintln(os.Stderr, "usage: controlplane apiserver FLAGS... | controlplane controllers KUBECONFIG")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := control(ctx, os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// control runs the controllers until the context ends.
func control(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, 12*time.Hour)
	runs, err := workloads(ctx, client, shared)
	if err != nil {
		return err
	}
	more, err := housekeeping(ctx, config, client, shared)
	if err != nil {
		return err
	}
	shared.Start(ctx.Done())
	for _, run := range append(runs, more...) {
		go run()
	}
	fmt.Println("controllers run")
	<-ctx.Done()
	return nil
}

// workloads makes the controllers that create and delete pods.
func workloads(ctx context.Context, client kubernetes.Interface, shared informers.SharedInformerFactory) ([]func(), error) {
	apps, pods := shared.Apps().V1(), shared.Core().V1().Pods()
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, client)
	if err != nil {
		return nil, err
	}
	replicas := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, client, burstReplicas)
	stateful := statefulset.NewStatefulSetController(ctx, pods, apps.StatefulSets(),
		shared.Core().V1().PersistentVolumeClaims(), apps.ControllerRevisions(), client)
	// The two nils are informers of workloads and pod groups, which an alpha feature needs.
	jobs, err := job.NewController(ctx, client, pods, shared.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return nil, err
	}
	return []func(){
		func() { deployments.Run(ctx, workers) },
		func() { replicas.Run(ctx, workers) },
		func() { stateful.Run(ctx, workers) },
		func() { jobs.Run(ctx, workers) },
	}, nil
}

// housekeeping makes the controllers of disruption budgets, owners and namespaces.
func housekeeping(ctx context.Context, config *rest.Config, client *kubernetes.Clientset, shared informers.SharedInformerFactory) ([]func(), error) {
	found := client.Discovery()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(found))
	if err != nil {
		return nil, err
	}
	apps := shared.Apps().V1()
	budgets := disruption.NewDisruptionController(ctx, shared.Core().V1().Pods(),
		shared.Policy().V1().PodDisruptionBudgets(), shared.Core().V1().ReplicationControllers(),
		apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, mapper, scales, found)
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespaces := namespace.NewNamespaceController(ctx, client, meta, found.ServerPreferredNamespacedResources,
		shared.Core().V1().Namespaces(), namespaceSync, v1.FinalizerKubernetes)
	started := make(chan struct{})
	both := informerfactory.NewInformerFactory(shared, metadatainformer.NewSharedInformerFactory(meta, 12*time.Hour))
	owners, err := garbagecollector.NewGarbageCollector(ctx, client, meta, mapper,
		garbagecollector.DefaultIgnoredResources(), both, started)
	if err != nil {
		return nil, err
	}
	return []func(){
		func() { budgets.Run(ctx, workers) },
		func() { namespaces.Run(ctx, workers) },
		func() { owners.Run(ctx, workers, gcSync) },
		func() { close(started); owners.Sync(ctx, found, gcSync) },
	}, nil
}
